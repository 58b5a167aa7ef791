package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
	"github.com/farfield-ml/farfield/train/data"
)

// loudness is data of one's own: a series of numbers is of class 1 if its last is the largest.
type loudness struct{}

func (loudness) Spec() data.Spec {
	return data.Spec{
		Name: "loudness", Kind: data.Class, Metric: data.Accuracy,
		Channels: 1, Length: 4, Classes: 2, Count: [3]int{data.Train: 500, data.Test: 200},
	}
}

func (loudness) Sample(s *data.Sample, split data.Split, i int) error {
	key := rng.New(1).Fold(uint64(split)).Fold(uint64(i))
	s.Values, s.Class = s.Values[:0], 1
	for j := range 4 {
		s.Values = append(s.Values, float32(key.Normal(uint64(j))))
	}
	for _, x := range s.Values[:3] {
		if x > s.Values[3] {
			s.Class = 0
		}
	}
	return nil
}

func Example() {
	preset, err := train.LookupPreset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	c := preset.Config
	c.Task, c.Model.Kind, c.Model.Context, c.Model.Tied = "loudness", model.Encoder, 4, false
	c.Batch, c.Steps = 50, 200
	// A folder in place of "" keeps the run, and train.Resume continues it.
	t, err := train.New(c, loudness{}, "")
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	score, err := t.Train(context.Background(), train.Observer{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d samples, more than nine of ten right: %t\n", score.Samples, score.Value > 0.9)
	// Output:
	// 200 samples, more than nine of ten right: true
}
