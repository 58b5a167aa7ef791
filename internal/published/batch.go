package published

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// poolerName is the projection of the first row beside the model.
const poolerName = "pooler.dense"

// rowCount returns the number of rows of a sequence.
func (p *plan) rowCount(b *model.Batch) int {
	if p.vision != nil {
		return b.N + 1
	}
	return b.N
}

// inputReader makes batches of inputs.
type inputReader struct {
	family    string
	plan      *plan
	stretched stretchedTable
}

// batch returns the batch of an input. It returns an error if the input does not fit.
func (r *inputReader) batch(in *Input) (*model.Batch, error) {
	if in == nil {
		return nil, fmt.Errorf("input: it is nil")
	}
	b := &model.Batch{B: in.B, N: in.N}
	c := &r.plan.config
	if in.B < 1 || r.plan.vision == nil && in.N < 1 || tensor.Size(in.B, max(in.N, 1), c.Width) == math.MaxInt {
		return nil, fmt.Errorf("input_ids: %d sequences of %d tokens", in.B, in.N)
	}
	if v := r.plan.vision; v != nil {
		return b, r.setPatches(b, in, v)
	}
	if in.Pixels != nil {
		return nil, fmt.Errorf("pixel_values: has %d elements, but %s reads tokens", len(in.Pixels), r.family)
	}
	if in.Mask != nil && len(in.Mask) != in.B*in.N {
		return nil, fmt.Errorf("attention_mask: has %d elements, B·N is %d·%d", len(in.Mask), in.B, in.N)
	}
	if len(in.IDs) != in.B*in.N {
		return nil, fmt.Errorf("input_ids: has %d elements, B·N is %d·%d", len(in.IDs), in.B, in.N)
	}
	lens, mask := splitMask(in)
	if c.Kind == model.EncoderDecoder {
		return b, r.setSource(b, in, lens, mask)
	}
	if in.DecoderIDs != nil || in.DecoderN != 0 {
		return nil, fmt.Errorf("decoder_input_ids: has %d elements, but %s has no target", len(in.DecoderIDs), r.family)
	}
	b.Tokens, b.Lens, b.KeyMask = in.IDs, lens, mask
	if in.Types != nil {
		if len(in.Types) != in.B*in.N {
			return nil, fmt.Errorf("token_type_ids: has %d elements, B·N is %d·%d", len(in.Types), in.B, in.N)
		}
		if c.TokenTypes > 0 {
			b.Types = in.Types
		} else if slices.ContainsFunc(in.Types, func(x int32) bool { return x != 0 }) {
			return nil, fmt.Errorf("token_type_ids: are not all 0, but %s has no token types", r.family)
		}
	}
	return b, r.setPositions(b)
}

// maskTail returns in with a mask for which the head reads the same row as in transformers: the
// first row, or in a decoder the row of the last token that is not padding. It masks the tokens
// after that row, on which no earlier row depends. It returns an error if the mask of in leaves the
// row out.
func (p *plan) maskTail(in *Input) (*Input, error) {
	pool := p.config.Pool
	if pool != model.PoolFirst && (pool != model.PoolLast || p.padding < 0) {
		return in, nil
	}
	if in == nil || in.B < 1 || in.N < 1 || len(in.IDs) != tensor.Size(in.B, in.N) || in.Mask != nil && len(in.Mask) != len(in.IDs) {
		return in, nil // batch returns the error
	}
	to := *in
	if to.Mask = slices.Clone(in.Mask); to.Mask == nil {
		to.Mask = slices.Repeat([]bool{true}, len(in.IDs))
	}
	for i := range in.B {
		ids, mask := in.IDs[i*in.N:][:in.N], to.Mask[i*in.N:][:in.N]
		if pool == model.PoolFirst {
			if !mask[0] {
				return nil, fmt.Errorf("attention_mask: masks the first token of sequence %d, whose row the head reads", i)
			}
			continue
		}
		last := in.N - 1
		for last > 0 && int(ids[last]) == p.padding {
			last--
		}
		if !mask[last] {
			return nil, fmt.Errorf("attention_mask: masks token %d of sequence %d, the last that is not pad_token_id %d, whose row the head reads", last, i, p.padding)
		}
		clear(mask[last+1:])
	}
	return &to, nil
}

// splitMask returns the lengths of a mask that ends each sequence, or the mask itself.
func splitMask(in *Input) (lens []int64, mask []bool) {
	if in.Mask == nil || !slices.Contains(in.Mask, false) {
		return nil, nil
	}
	for i := range in.B {
		row := in.Mask[i*in.N:][:in.N]
		n := slices.Index(row, false)
		if n < 0 {
			n = len(row)
		}
		if slices.Contains(row[n:], true) {
			return nil, in.Mask
		}
		lens = append(lens, int64(n))
	}
	return lens, nil
}

// setPositions sets the rows of learned positions, where they do not count from the
// first token.
func (r *inputReader) setPositions(b *model.Batch) error {
	c := &r.plan.config
	if c.Positions != model.Learned {
		return nil
	}
	pad := int32(r.plan.padPosition)
	longest := b.N
	if pad >= 0 {
		longest = 0
		for i := range b.B {
			n := 0
			for _, id := range b.Tokens[i*b.N:][:b.N] {
				if id != pad {
					n++
				}
			}
			longest = max(longest, n)
		}
	}
	t := &r.stretched
	first, length := c.PositionOffset, c.Context
	if t.rows > 0 {
		var err error
		if first, err = t.firstRow(longest); err != nil {
			return err
		}
		length = c.Context
	}
	if longest > length {
		return fmt.Errorf("positions: %d are needed, the learned table has %d; open the folder with positions %q, or pass fewer tokens", longest, length, Interpolate)
	}
	if pad < 0 && first == c.PositionOffset {
		return nil
	}
	b.Positions = make([]int32, b.B*b.N)
	for i := range b.B {
		n := int32(first)
		for j := range b.N {
			at := i*b.N + j
			if pad >= 0 && b.Tokens[at] == pad {
				b.Positions[at] = pad
				continue
			}
			b.Positions[at] = n
			n++
		}
	}
	return nil
}

// setSource sets source and target of an encoder-decoder.
func (r *inputReader) setSource(b *model.Batch, in *Input, lens []int64, mask []bool) error {
	if mask != nil {
		return fmt.Errorf("attention_mask: masks tokens before others, an encoder-decoder takes masks at the end of a sequence")
	}
	if in.Types != nil {
		return fmt.Errorf("token_type_ids: %s has no token types", r.family)
	}
	if in.DecoderIDs == nil && in.DecoderN == 0 {
		return fmt.Errorf("decoder_input_ids: is missing, %s has a target", r.family)
	}
	if in.DecoderN < 1 || tensor.Size(in.B, in.DecoderN, r.plan.config.Width) == math.MaxInt || len(in.DecoderIDs) != in.B*in.DecoderN {
		return fmt.Errorf("decoder_input_ids: has %d elements, B·N is %d·%d", len(in.DecoderIDs), in.B, in.DecoderN)
	}
	b.N, b.Tokens = in.DecoderN, in.DecoderIDs
	b.Source, b.SourceN, b.SourceLens = in.IDs, in.N, lens
	return nil
}

// setPatches sets the numbers of the patches of images.
func (r *inputReader) setPatches(b *model.Batch, in *Input, v *vision) error {
	if in.IDs != nil || in.Mask != nil || in.Types != nil || in.DecoderIDs != nil {
		return fmt.Errorf("input_ids: %s reads pixel_values alone", r.family)
	}
	if want := tensor.Size(in.B, v.channels, v.size, v.size); len(in.Pixels) != want {
		return fmt.Errorf("pixel_values: has %d elements, %d images of %d·%d·%d need %d", len(in.Pixels), in.B, v.channels, v.size, v.size, want)
	}
	side := v.size / v.patch
	b.N = side * side
	b.Values = make([]float32, 0, len(in.Pixels))
	for i := range in.B {
		for p := range b.N {
			for ch := range v.channels {
				for y := range v.patch {
					row := ((i*v.channels+ch)*v.size+p/side*v.patch+y)*v.size + p%side*v.patch
					b.Values = append(b.Values, in.Pixels[row:][:v.patch]...)
				}
			}
		}
	}
	return nil
}

// gradients returns the gradients of the weights, in the order of the file.
func (m *Model) gradients() ([]*array.Array, error) {
	if m.stretched.rows > 0 {
		p, err := m.body.Params().Get(positionName)
		if err != nil {
			return nil, err
		}
		m.stretched.foldGradients(p)
	}
	var list []*array.Array
	for _, x := range m.stored {
		if x.weight == nil {
			continue
		}
		n := 1
		for _, d := range x.shape {
			n *= d
		}
		data := make([]float32, n)
		if w := x.weight; len(w.parts) > 0 {
			parts, err := m.partData(w, func(p *param.Param) []float32 { return p.Grad })
			if err != nil {
				return nil, err
			}
			w.move(data, 0, parts, true)
		}
		a, err := array.New(x.name, data, x.shape...)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}
