//go:build !float64

package model_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/safetensors"
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
	var list []safetensors.Tensor
	for i, x := range adam.Moments() {
		p := m.Params().All()[i]
		list = append(list, safetensors.Tensor{Name: "m." + p.Name, Shape: p.Shape, Data: x.M},
			safetensors.Tensor{Name: "v." + p.Name, Shape: p.Shape, Data: x.V})
	}
	steps := map[string]string{"steps": strconv.FormatInt(adam.Steps(), 10)}
	if err := safetensors.Write(filepath.Join(temp, "adam.safetensors"), list, steps); err != nil {
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
	state, err := safetensors.Open(filepath.Join(dir, "adam.safetensors"))
	if err != nil {
		return nil, nil, err
	}
	defer state.Close()
	steps, err := strconv.ParseInt(state.Metadata()["steps"], 10, 64)
	if err != nil {
		return nil, nil, err
	}
	adam := optim.NewAdamW(m.Params())
	for i, x := range adam.Moments() {
		p := m.Params().All()[i]
		for name, to := range map[string][]float32{"m." + p.Name: x.M, "v." + p.Name: x.V} {
			t, err := state.Read(name)
			if err != nil {
				return nil, nil, err
			}
			if copy(to, t.Data) != len(t.Data) || len(t.Data) != len(to) {
				return nil, nil, fmt.Errorf("%s has %d numbers, the model needs %d", name, len(t.Data), len(to))
			}
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
