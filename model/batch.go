package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Batch is B sequences of N positions. Lens gives the number of valid positions of each
// sequence. Later positions are masked, not pooled and not counted.
type Batch struct {
	B, N   int
	Tokens []int32   // [B·N]
	Values []float32 // [B·N·Inputs] in place of Tokens
	Lens   []int64   // [B]; nil: all are valid

	// KeyMask [B·N] is whether a position is valid, in addition to Lens; nil: all are. Other
	// positions are masked, not pooled and not counted. It needs attention as the mixer, and
	// Config.Conv to be 0.
	KeyMask []bool
	// Positions [B·N] holds rows of the table of learned positions; nil: 0, 1, … in each
	// sequence, plus Config.PositionOffset.
	Positions []int32
	Types     []int32 // [B·N] rows of the table of token types; nil: all 0

	// Targets [Config.Rows(B, N)] holds classes, for CrossEntropy. Numbers
	// [Config.Rows(B, N), Config.Numbers()] holds numbers for Squared, levels for Logistics.
	Targets []int32   // a target of -1 is not counted
	Numbers []float32 // a number that is NaN is not counted

	// The source of an encoder-decoder.
	Source     []int32 // [B·SourceN]
	SourceN    int
	SourceLens []int64 // [B]; nil: all are valid

	// Key is the random key of dropout. Every update needs another key.
	Key rng.Key
}

var (
	errNoBatch    = errors.New("batch: it is nil")
	errNotCounted = fault.Fieldf[Batch]("{Targets}: none of them is counted")
)

// check returns an error for the first field that does not fit a configuration. It does not
// check targets.
func (b *Batch) check(c *Config) error {
	if b == nil {
		return errNoBatch
	}
	if b.B <= 0 || b.N <= 0 {
		return fmt.Errorf("batch: %d sequences of %d tokens", b.B, b.N)
	}
	if tensor.Size(b.B, b.N, max(c.Inputs, 1)) == math.MaxInt {
		return fmt.Errorf("batch: %d sequences of %d tokens are beyond any memory", b.B, b.N)
	}
	if c.Parts == 2 && b.B%2 != 0 {
		return fmt.Errorf("batch: %d sequences, pairs need an even number", b.B)
	}
	if err := b.checkInputs(c); err != nil {
		return err
	}
	if err := checkLens("{Lens}", b.Lens, b.B, b.N); err != nil {
		return err
	}
	if err := b.checkPlaces(c); err != nil {
		return err
	}
	if c.Kind != EncoderDecoder {
		if b.Source != nil || b.SourceN != 0 || b.SourceLens != nil {
			return fault.Fieldf[Batch]("{Source}: %d tokens, but {Kind} %s has no source", len(b.Source), c.Kind)
		}
		return nil
	}
	if b.SourceN <= 0 {
		return fault.Fieldf[Batch]("{Source}: %d sequences of %d tokens", b.B, b.SourceN)
	}
	if tensor.Size(b.B, b.SourceN) == math.MaxInt {
		return fault.Fieldf[Batch]("{Source}: %d sequences of %d tokens are beyond any memory", b.B, b.SourceN)
	}
	if err := checkTokens("{Source}", b.Source, b.B, b.SourceN, c.sourceVocab(), 0); err != nil {
		return err
	}
	return checkLens("{SourceLens}", b.SourceLens, b.B, b.SourceN)
}

// checkPlaces returns an error if key mask, positions or types do not fit.
func (b *Batch) checkPlaces(c *Config) error {
	if b.KeyMask != nil {
		if _, owns := nn.LookupMixer(c.Mechanism); owns || c.Kind == Convolutional || c.Conv != 0 {
			return fault.Fieldf[Batch]("{KeyMask}: has %d elements, but {Kind} %s with {Mechanism} %s and {Conv} %d takes lengths alone", len(b.KeyMask), c.Kind, c.Mechanism, c.Conv)
		}
		if len(b.KeyMask) != b.B*b.N {
			return fault.Fieldf[Batch]("{KeyMask}: has %d elements, B·N is %d·%d", len(b.KeyMask), b.B, b.N)
		}
	}
	if b.Types != nil {
		if c.TokenTypes == 0 {
			return fault.Fieldf[Batch]("{Types}: there are %d, but the model has no token types", len(b.Types))
		}
		if err := checkTokens("{Types}", b.Types, b.B, b.N, c.TokenTypes, 0); err != nil {
			return err
		}
	}
	if b.Positions == nil {
		return nil
	}
	if c.Positions != Learned || c.frontPositions() > 0 {
		return fault.Fieldf[Batch]("{Positions}: there are %d, but {Positions} are %s with {Pool} %q; needs %s and another {Pool} than %s", len(b.Positions), c.Positions, c.Pool, Learned, PoolCLS)
	}
	if len(b.Positions) != b.B*b.N {
		return fault.Fieldf[Batch]("{Positions}: has %d elements, B·N is %d·%d", len(b.Positions), b.B, b.N)
	}
	for i, p := range b.Positions {
		if p < 0 || int(p) >= c.positionRows() {
			return fault.Fieldf[Batch]("{Positions}: row %d, position %d is %d, the learned table has %d", i/b.N, i%b.N, p, c.positionRows())
		}
	}
	return nil
}

// checkInputs returns an error if tokens or numbers do not fit.
func (b *Batch) checkInputs(c *Config) error {
	inputs := c.Inputs
	switch {
	case inputs == 0 && b.Values != nil:
		return fault.Fieldf[Batch]("{Values}: there are %d, but the model reads tokens", len(b.Values))
	case inputs == 0:
		return checkTokens("{Tokens}", b.Tokens, b.B, b.N, c.Vocab, 0)
	case b.Tokens != nil:
		return fault.Fieldf[Batch]("{Tokens}: there are %d, but the model reads numbers", len(b.Tokens))
	case len(b.Values) != b.B*b.N*inputs:
		return fault.Fieldf[Batch]("{Values}: has %d elements, B·N·{Inputs} is %d·%d·%d", len(b.Values), b.B, b.N, inputs)
	}
	for i, x := range b.Values {
		if x-x != 0 {
			return fault.Fieldf[Batch]("{Values}: row %d, position %d has %v", i/inputs/b.N, i/inputs%b.N, x)
		}
	}
	return nil
}

// checkTokens returns an error for an id outside least ≤ id < vocab. name is an argument, or a field of Batch
// in braces.
func checkTokens(name string, ids []int32, b, n, vocab int, least int32) error {
	if len(ids) != tensor.Size(b, n) {
		return fault.Fieldf[Batch](name+": has %d elements, B·N is %d·%d", len(ids), b, n)
	}
	for i, id := range ids {
		if id < least || int(id) >= vocab {
			return fault.Fieldf[Batch](name+": row %d, position %d is %d, the vocabulary has %d", i/n, i%n, id, vocab)
		}
	}
	return nil
}

// checkLens returns an error for a length outside 0 ≤ l ≤ n. name is as in checkTokens.
func checkLens(name string, lens []int64, b, n int) error {
	if lens != nil && len(lens) != b {
		return fault.Fieldf[Batch](name+": has %d elements, B is %d", len(lens), b)
	}
	for i, l := range lens {
		if l < 0 || l > int64(n) {
			return fault.Fieldf[Batch](name+": row %d is %d, N is %d", i, l, n)
		}
	}
	return nil
}
