package model_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// A decoder learns to count to five, over and over, and then does it token by
// token.
func Example() {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 5, Layers: 1, Heads: 2, Width: 16, Context: 15,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		log.Fatal(err)
	}
	batch := &model.Batch{B: 1, N: 15}
	for i := range batch.N {
		batch.Tokens = append(batch.Tokens, int32(i%5))
		batch.Targets = append(batch.Targets, int32((i+1)%5))
	}
	adam := optim.NewAdamW(m.Params())
	for range 100 {
		m.Params().ZeroGrad()
		if _, err := m.Forward(context.Background(), batch); err != nil {
			log.Fatal(err)
		}
		if err := m.Backward(1); err != nil {
			log.Fatal(err)
		}
		adam.Step(0.01, 1)
	}

	s, err := m.NewSession(1)
	if err != nil {
		log.Fatal(err)
	}
	token := int32(2)
	for range 8 {
		logits, err := s.Step(context.Background(), []int32{token}, 1)
		if err != nil {
			log.Fatal(err)
		}
		for i, l := range logits {
			if l > logits[token] {
				token = int32(i)
			}
		}
		fmt.Print(token, " ")
	}
	// Output: 3 4 0 1 2 3 4 0
}

// The configuration of a small Llama.
func Example_llama() {
	c := model.Config{
		Kind: model.Decoder, Vocab: 32000, Layers: 4, Heads: 8, KVHeads: 2, Width: 256, Hidden: 688, Context: 2048,
		Positions: model.Rotary, Mechanism: "softmax", Norm: model.RMSNorm, Activation: model.SwiGLU,
	}
	fmt.Println(c.Validate(), c.Params())
	// Output: <nil> 19155200
}

// The configuration of nanoGPT for a CPU, with attention by Fastmax.
func ExampleConfig_Params() {
	c := model.Config{
		Kind: model.Decoder, Vocab: 65, Layers: 4, Heads: 4, Width: 128, Context: 64,
		Positions: model.Learned, Mechanism: "fastmax", Tied: true,
	}
	fmt.Println(c.Params())
	// Output: 804096
}
