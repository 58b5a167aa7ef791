package exchange

import (
	"context"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
)

// Codebooks makes codebooks of the keys of windows for all layers of s with softmax. For each
// number of cells it returns centres [key heads,cells,d] by their names in the model. It returns an
// error where Run does, or if there are fewer keys than cells.
func Codebooks(ctx context.Context, s *Subject, windows [][]int32, cells []int, seed uint64) ([]map[string][]float32, error) {
	r := &run{Options: Options{Seed: seed}, ctx: ctx, s: s, config: s.Model.Config(), books: map[int]map[int][]float32{}, expected: 1}
	if err := r.findLayers(); err != nil {
		return nil, err
	}
	if err := s.Model.CheckMechanisms(); err != nil {
		return nil, err
	}
	var err error
	if r.keys, err = r.take(windows, 0); err != nil {
		return nil, err
	}
	list := make([]map[string][]float32, len(cells))
	for n, k := range cells {
		if err := checkCells(k, r.keyCount()); err != nil {
			return nil, err
		}
		if err := r.makeBooks(k); err != nil {
			return nil, err
		}
		list[n] = map[string][]float32{}
		for i, centres := range r.books[k] {
			list[n][layerName(i)+".codebook"] = centres
		}
	}
	return list, nil
}

// Tilts returns, for cells that Codebooks made, the mean query that the trained model sends to each
// cell in the given windows: [key heads,cells,d] by their names in the model. c gives the near
// field, whose keys are in no cell. Tilts returns an error where Codebooks does.
func Tilts(ctx context.Context, s *Subject, windows [][]int32, books map[string][]float32, c Choice) (map[string][]float32, error) {
	r := &run{ctx: ctx, s: s, config: s.Model.Config(), books: map[int]map[int][]float32{c.Cells: {}}, tilts: map[Choice]map[int][]float32{}, fitTo: windows, expected: 1}
	if err := r.findLayers(); err != nil {
		return nil, err
	}
	for name, book := range books {
		if i := numberOf(strings.TrimSuffix(name, ".codebook")); i >= 0 {
			r.books[c.Cells][i] = book
		}
	}
	c.Fitted = true
	if err := r.fit(c); err != nil {
		return nil, err
	}
	list := map[string][]float32{}
	for i, tilts := range r.tilts[c.place()] {
		list[layerName(i)+".tilt"] = tilts
	}
	return list, nil
}

// NearAlone returns a factory of softmax over the near field of multipole alone, without far keys.
// A scale of 0 means 1/√D.
func NearAlone(block, window int, scale float64) model.Factory {
	f := field{block, window, multipoleSinks, multipoleEnds}
	return model.NewFactory(func(mechanism.Options) (attention.Mechanism, error) { return newNearAlone(f, scale), nil })
}
