// Command train teaches a small transformer to repeat a text: the loop of farfield
// train, written by hand.
package main

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/optim"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// A sample is letters and then, letter by letter, the same again.
const (
	vocabulary = 8
	word       = 4
	batch      = 32
	steps      = 200
)

func main() {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: vocabulary, Layers: 2, Heads: 2, Width: 32, Context: 2*word - 1,
		Positions: model.Learned, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Config().Params(), "weights")

	adam := optim.NewAdamW(m.Params())
	rate := optim.Cosine{Peak: 3e-3, Floor: 3e-4, WarmUp: 20, Steps: steps}
	for step := range steps {
		m.Params().ZeroGrad()
		loss, err := m.Forward(samples(rng.New(2).Fold(uint64(step))))
		if err != nil {
			log.Fatal(err)
		}
		if err := m.Backward(1); err != nil {
			log.Fatal(err)
		}
		adam.Step(rate.Rate(step), optim.ClipFactor(optim.GradNorm(m.Params()), 1))
		if step%50 == 0 {
			fmt.Printf("step %3d: loss %.1f\n", step, loss)
		}
	}

	// Samples that it has not seen.
	loss, err := m.Forward(samples(rng.New(3)))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it has learned to copy:", loss < 0.1)
}

// samples draws words. Only their second halves are to be predicted: a target of
// -1 is none.
func samples(key rng.Key) *model.Batch {
	b := &model.Batch{B: batch, N: 2*word - 1}
	for i := range batch {
		letter := func(j int) int32 { return int32(key.Fold(uint64(i)).Intn(uint64(j%word), vocabulary)) }
		for j := range b.N {
			b.Tokens = append(b.Tokens, letter(j))
			if j+1 < word {
				b.Targets = append(b.Targets, -1)
			} else {
				b.Targets = append(b.Targets, letter(j+1))
			}
		}
	}
	return b
}
