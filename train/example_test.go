package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/train"
)

func Example() {
	text, err := task.NewText(task.InventText(1, 20_000), token.NewByteVocabulary())
	if err != nil {
		log.Fatal(err)
	}
	preset, err := train.LookupPreset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	c := preset.Config
	c.Steps = 20
	// A folder instead of "" keeps the run, and train.Resume continues it.
	t, err := train.New(c, text, "")
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	score, err := t.Train(context.Background(), train.Observer{
		Step: func(s train.Step) {
			if s.Step == 1 { // as good as guessing among 256 bytes
				fmt.Printf("step %d: %.0f bits per byte\n", s.Step, s.Bits)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes predicted, better than guessing: %t\n", score.Bytes, score.Bits < 8)
	// Output:
	// step 1: 8 bits per byte
	// 2000 bytes predicted, better than guessing: true
}
