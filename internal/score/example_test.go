package score_test

import (
	"context"
	"fmt"

	"github.com/farfield-ml/farfield/internal/score"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func Example() {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 16, Context: 64,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := score.New(m, token.NewByteVocabulary())
	if err != nil {
		fmt.Println(err)
		return
	}
	line, err := s.ScoreText(context.Background(), []byte("a model that has learned nothing\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d bytes, %.1f bits each\n", line.Bytes, line.PerByte())
	// Output: 33 bytes, 8.0 bits each
}
