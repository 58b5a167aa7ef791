//go:build !float64

package model_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// An encoder-decoder learns to reverse three tokens. Token 5 begins the output.
func Example_encoderDecoder() {
	m, err := model.New(model.Config{
		Kind: model.EncoderDecoder, Vocab: 6, SourceVocab: 5, Layers: 1, Heads: 2, Width: 32, Context: 3,
		Positions: model.Learned, Mechanism: "softmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		log.Fatal(err)
	}
	const n = 3
	adam := optim.NewAdamW(m.Params())
	for step := range 400 {
		batch := &model.Batch{B: 16, N: n, SourceN: n}
		for i := range batch.B * n {
			batch.Source = append(batch.Source, int32(rng.New(uint64(step)).Intn(uint64(i), 5)))
		}
		for b := range batch.B {
			last := int32(5)
			for i := range n {
				next := batch.Source[b*n+n-1-i]
				batch.Tokens, batch.Targets = append(batch.Tokens, last), append(batch.Targets, next)
				last = next
			}
		}
		m.Params().ZeroGrad()
		if _, err := m.Forward(context.Background(), batch); err != nil {
			log.Fatal(err)
		}
		if err := m.Backward(1); err != nil {
			log.Fatal(err)
		}
		adam.Step(0.005, 1)
	}

	tokens, logits := []int32{5}, []float32(nil)
	for range n {
		logits = make([]float32, 6*len(tokens))
		batch := &model.Batch{B: 1, N: len(tokens), Tokens: tokens, SourceN: n, Source: []int32{3, 0, 4}}
		if err := m.Logits(context.Background(), batch, logits); err != nil {
			log.Fatal(err)
		}
		row := logits[6*(len(tokens)-1):]
		tokens = append(tokens, int32(slices.Index(row, slices.Max(row))))
	}
	fmt.Println(tokens[1:])
	// Output: [4 0 3]
}

// A loss of one's own: the hinge loss, which wants the logit of the class to exceed all others by 1.
func ExampleModel_ForwardLogits() {
	const vocab = 5
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: vocab, Layers: 1, Heads: 2, Width: 16, Context: 15,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		log.Fatal(err)
	}
	batch := &model.Batch{B: 1, N: 15}
	for i := range batch.N {
		batch.Tokens = append(batch.Tokens, int32(i%vocab))
	}
	adam := optim.NewAdamW(m.Params())
	logits, gradient := make([]float32, batch.N*vocab), make([]float32, batch.N*vocab)
	for step := range 101 {
		if err := m.ForwardLogits(context.Background(), batch, logits); err != nil {
			log.Fatal(err)
		}
		clear(gradient)
		var loss float32
		for i, token := range batch.Tokens {
			row, class := logits[i*vocab:][:vocab], (token+1)%vocab
			for j, x := range row {
				if excess := 1 + x - row[class]; j != int(class) && excess > 0 {
					loss += excess
					gradient[i*vocab+j]++
					gradient[i*vocab+int(class)]--
				}
			}
		}
		if step%100 == 0 {
			fmt.Printf("step %3d: loss below 1: %t\n", step, loss < 1)
		}
		m.Params().ZeroGrad()
		if err := m.BackwardLogits(gradient, 1); err != nil {
			log.Fatal(err)
		}
		adam.Step(0.01, 1)
	}
	// Output:
	// step   0: loss below 1: false
	// step 100: loss below 1: true
}
