// Command loss trains a model of bytes with a loss of its own, and opens it with farfield.Open.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// The sizes of a batch, and the tokens, which are bytes.
const (
	batch, window = 8, 32
	vocab         = 256
)

var text = strings.Repeat("one two three four five six seven eight nine ten ", 4)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: vocab, Layers: 2, Heads: 2, Width: 32, Context: window,
		Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		return err
	}
	adam, schedule := optim.NewAdamW(m.Params()), optim.Cosine{Peak: 1e-2, Floor: 1e-3, WarmUp: 10, Steps: 120}
	logits, gradient := make([]float32, batch*window*vocab), make([]float32, batch*window*vocab)
	for step := range schedule.Steps {
		b, next := drawBatch(step)
		if err := m.ForwardLogits(ctx, b, logits); err != nil {
			return err
		}
		loss := smoothedLoss(gradient, logits, next)
		m.Params().ZeroGrad()
		if err := m.BackwardLogits(gradient, 1); err != nil {
			return err
		}
		adam.Step(schedule.Rate(step), optim.ClipFactor(optim.GradNorm(m.Params()), 1))
		if step == 0 || step == schedule.Steps-1 {
			fmt.Printf("step %3d: loss %.1f\n", step, loss)
		}
	}

	parent, err := os.MkdirTemp("", "loss")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "model")
	if err := train.SaveByteModel(dir, m); err != nil {
		return err
	}
	opened, err := farfield.Open(dir)
	if err != nil {
		return err
	}
	defer opened.Close()
	more, err := opened.Generate(ctx, "one two three ", farfield.GenerateOptions{Tokens: 9})
	fmt.Println("one two three", more)
	return err
}

// drawBatch returns windows of the text, and the byte behind each of their bytes.
func drawBatch(step int) (b *model.Batch, next []byte) {
	b = &model.Batch{B: batch, N: window}
	for i := range batch {
		at := rng.New(2).Fold(uint64(step)).Intn(uint64(i), len(text)-window)
		for j := range window {
			b.Tokens = append(b.Tokens, int32(text[at+j]))
			next = append(next, text[at+j+1])
		}
	}
	return b, next
}

// smoothedLoss returns the mean cross-entropy of the logits to targets that leave a share of their
// probability to every byte alike (Szegedy et al. 2016), and sets dst to its gradient.
func smoothedLoss(dst, logits []float32, next []byte) (loss float64) {
	const share = 0.1
	for i, class := range next {
		row, d := logits[i*vocab:][:vocab], dst[i*vocab:][:vocab]
		var sum float64
		for _, x := range row {
			sum += math.Exp(float64(x))
		}
		for j, x := range row {
			target := share / vocab
			if j == int(class) {
				target += 1 - share
			}
			logP := float64(x) - math.Log(sum)
			loss -= target * logP / float64(len(next))
			d[j] = float32((math.Exp(logP) - target) / float64(len(next)))
		}
	}
	return loss
}
