package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func Example() {
	// A model that has learned nothing; farfield.Open reads one that has.
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 2, Heads: 2, Width: 32, Context: 64,
		Positions: model.Rotary, Mechanism: "fastmax",
	}, rng.New(1))
	if err != nil {
		log.Fatal(err)
	}
	g, err := generate.New(m, generate.Sampling{Temperature: 0.8, TopK: 40, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	g.Append('H', 'i')
	n := 0
	err = g.Generate(context.Background(), 100, func(token int32) error {
		n++ // print it
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "tokens drawn, the text has", g.Tokens())
	// Output:
	// 100 tokens drawn, the text has 102
}
