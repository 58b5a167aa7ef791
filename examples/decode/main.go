// Command decode computes attention token by token, saves its state to a file after half of them,
// and continues from the file to the same bits. The state does not grow.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

const heads, tokens, width = 2, 400, 16

func main() {
	dir, err := os.MkdirTemp("", "decode")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(filepath.Join(dir, "state")); err != nil {
		log.Fatal(err)
	}
}

// run decodes all tokens at once, and again in two parts with a file between
// them.
func run(path string) error {
	m, err := mechanism.New("fastmax", mechanism.Options{})
	if err != nil {
		return err
	}
	shape := attention.Shape{B: 1, H: heads, Hkv: heads, D: width, Dv: width}
	state, err := m.NewState(shape)
	if err != nil {
		return err
	}
	whole, err := decodeTokens(state, 0, tokens)
	if err != nil {
		return err
	}
	fmt.Printf("%d tokens are remembered in %d bytes\n", state.Tokens(), state.Bytes())

	if state, err = m.NewState(shape); err != nil {
		return err
	}
	before, err := decodeTokens(state, 0, tokens/2)
	if err != nil {
		return err
	}
	fmt.Printf("%d tokens are remembered in %d bytes\n", state.Tokens(), state.Bytes())
	if err := saveState(path, state); err != nil {
		return err
	}

	if state, err = loadState(path, m); err != nil {
		return err
	}
	after, err := decodeTokens(state, int(state.Tokens()), tokens)
	if err != nil {
		return err
	}
	fmt.Println("the same bits after a load:", slices.Equal(append(before, after...), whole))
	return nil
}

// decodeTokens gives state the tokens from begin to end, one at a time, and returns
// their outputs: [end-begin, heads, width].
func decodeTokens(state attention.State, begin, end int) ([]float32, error) {
	var all []float32
	out := tensor.NewHeads(1, heads, 1, width)
	for i := begin; i < end; i++ {
		token := &attention.Call{Q: randomRow(1, i), K: randomRow(2, i), V: randomRow(3, i)}
		if err := state.Step(out, token); err != nil {
			return nil, err
		}
		all = append(all, out.Data...)
	}
	return all, nil
}

// saveState writes a state to a file.
func saveState(path string, state attention.State) error {
	data, err := state.AppendBinary(nil)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}

// loadState reads a state of m. The file has a checksum and names its mechanism; a state of
// another mechanism is an error.
func loadState(path string, m attention.Mechanism) (attention.State, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return m.RestoreState(data)
}

// randomRow stands for what a model projects token i to.
func randomRow(seed uint64, i int) tensor.Heads {
	x := tensor.NewHeads(1, heads, 1, width)
	for j := range x.Data {
		x.Data[j] = float32(rng.New(seed).Fold(uint64(i)).Normal(uint64(j)))
	}
	return x
}
