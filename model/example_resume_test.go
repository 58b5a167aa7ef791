//go:build !float64

package model_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// saveLoop writes a model and its optimiser to a new folder, which appears whole or not at all.
func saveLoop(dir string, m *model.Model, adam *optim.AdamW) error {
	temp := dir + ".tmp"
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := m.Save(temp); err != nil {
		return err
	}
	var state bytes.Buffer
	list := []any{adam.Steps()}
	for _, x := range adam.Moments() {
		list = append(list, x.M, x.V)
	}
	for _, x := range list {
		if err := binary.Write(&state, binary.LittleEndian, x); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(temp, "adam"), state.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, dir)
}

// loadLoop reads what saveLoop wrote.
func loadLoop(dir string) (*model.Model, *optim.AdamW, error) {
	m, err := model.Load(dir)
	if err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "adam"))
	if err != nil {
		return nil, nil, err
	}
	adam, state, steps := optim.NewAdamW(m.Params()), bytes.NewReader(data), int64(0)
	list := []any{&steps}
	for _, x := range adam.Moments() {
		list = append(list, x.M, x.V)
	}
	for _, x := range list {
		if err := binary.Read(state, binary.LittleEndian, x); err != nil {
			return nil, nil, err
		}
	}
	return m, adam, adam.Restore(steps)
}

// A training loop of one's own is stopped after 3 updates and resumed. It ends with the bits of a loop
// that was not stopped, because all that an update needs is saved, or follows from its number: batch,
// key of dropout and learning rate.
func Example_resume() {
	train := func(m *model.Model, adam *optim.AdamW, until int) {
		schedule := optim.Cosine{Peak: 0.01, WarmUp: 2, Steps: 6}
		for step := int(adam.Steps()); step < until; step++ {
			batch := &model.Batch{B: 4, N: 8, Key: rng.New(1).Fold(uint64(step))}
			for i := range batch.B * batch.N {
				token := int32(rng.New(2).Fold(uint64(step)).Intn(uint64(i), 5))
				batch.Tokens, batch.Targets = append(batch.Tokens, token), append(batch.Targets, (token+1)%5)
			}
			m.Params().ZeroGrad()
			if _, err := m.Forward(context.Background(), batch); err != nil {
				log.Fatal(err)
			}
			if err := m.Backward(1); err != nil {
				log.Fatal(err)
			}
			adam.Step(schedule.Rate(step), optim.ClipFactor(optim.GradNorm(m.Params()), 1))
		}
	}
	begin := func() (*model.Model, *optim.AdamW) {
		m, err := model.New(model.Config{
			Kind: model.Decoder, Vocab: 5, Layers: 1, Heads: 2, Width: 16, Context: 8,
			Positions: model.Rotary, Mechanism: "fastmax", Dropout: 0.1,
		}, rng.New(3))
		if err != nil {
			log.Fatal(err)
		}
		return m, optim.NewAdamW(m.Params())
	}

	whole, adam := begin()
	train(whole, adam, 6)

	stopped, adam := begin()
	train(stopped, adam, 3)
	folder, err := os.MkdirTemp("", "loop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := saveLoop(filepath.Join(folder, "step-3"), stopped, adam); err != nil {
		log.Fatal(err)
	}
	resumed, adam, err := loadLoop(filepath.Join(folder, "step-3"))
	if err != nil {
		log.Fatal(err)
	}
	train(resumed, adam, 6)

	equal := true
	for i, p := range whole.Params().All() {
		equal = equal && slices.Equal(p.Data, resumed.Params().All()[i].Data)
	}
	fmt.Println("updates:", adam.Steps(), "equal bits:", equal)
	// Output: updates: 6 equal bits: true
}
