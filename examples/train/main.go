// Command train teaches a small transformer to repeat a word: it trains on data of its own.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
	"github.com/farfield-ml/farfield/train/data"
)

// A sample is letters and then, letter by letter, the same again.
const (
	letters = 8
	word    = 4
)

// repeated is the data. Its two methods are all that training needs.
type repeated struct{}

// Spec describes the samples: the next token is to be predicted.
func (repeated) Spec() data.Spec {
	return data.Spec{
		Name: "repeated", Kind: data.Next, Metric: data.Accuracy,
		Vocab: letters, Classes: letters, Length: 2*word - 1, Count: [3]int{data.Endless, 100, 100},
	}
}

// Sample sets s to a random word and its repetition. Only the second half is to be predicted: a
// label of -1 means none.
func (repeated) Sample(s *data.Sample, split data.Split, i int) error {
	key := rng.New(1).Fold(uint64(split)).Fold(uint64(i))
	letter := func(j int) int32 { return int32(key.Intn(uint64(j%word), letters)) }
	s.Tokens, s.Labels = s.Tokens[:0], s.Labels[:0]
	for j := range 2*word - 1 {
		s.Tokens = append(s.Tokens, letter(j))
		if j+1 < word {
			s.Labels = append(s.Labels, -1)
		} else {
			s.Labels = append(s.Labels, letter(j+1))
		}
	}
	return nil
}

func main() {
	tiny, err := train.LookupPreset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	c := tiny.Config
	c.Task = "repeated"
	c.Model.Layers, c.Model.Heads, c.Model.Width, c.Model.Context = 2, 2, 32, 2*word-1
	c.Model.Positions = model.Learned
	c.Batch, c.Steps, c.WarmUp, c.Rate, c.MinRate = 32, 200, 20, 3e-3, 3e-4

	// A folder in place of "" keeps the run, and train.Resume continues it.
	t, err := train.New(c, repeated{}, "")
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	score, err := t.Train(context.Background(), train.Observer{
		Step: func(s train.Step) {
			if s.Step%150 == 1 {
				fmt.Printf("step %3d: loss %.1f\n", s.Step, s.Loss)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it repeats words that it has not seen:", score.Value > 0.99)
}
