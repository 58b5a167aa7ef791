package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

func NewLuna(r *entry.Reader) (headwise.Function, error) {
	length, err := r.Integer("length", 1, 4096)
	if err != nil {
		return nil, err
	}
	form, err := r.Choice("form", "encoder", "causal")
	if err != nil {
		return nil, err
	}
	omega, err := r.Choice("omega", "elu+1", "softplus", "elu")
	if err != nil {
		return nil, err
	}
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	p := &param.Param{Name: "p", Shape: []int{max(r.Heads, 1), length, r.ParamWidth()}, Decay: true}
	if err := r.Room(p.Name, p.Shape...); err != nil {
		return nil, err
	}
	p.Data = make([]float, p.Shape[0]*p.Shape[1]*p.Shape[2])
	p.Grad = make([]float, len(p.Data))
	for i := range p.Data {
		p.Data[i] = float(key.Normal(uint64(i)))
	}
	setting := fmt.Sprintf("luna form=%s length=%d scale=%s", form, length, entry.FormatScale(scale))
	if form == "causal" {
		omegas := map[string]PackMap{"elu+1": entry.EluPlusOne{}, "softplus": softplus{}, "elu": elu{}}
		return NewPack(r.Name, setting+" omega="+omega, p, omegas[omega], scale), nil
	}
	set := new(param.Set)
	set.Add(p)
	return &lunaEncoder{setting, set, headwise.NewSoftmax(scale)}, nil
}

// lunaEncoder packs keys and values by softmax attention of learned queries, and
// attends to the packed keys and values (Ma et al. 2021, eq. 7-8).
type lunaEncoder struct {
	setting string
	params  *param.Set
	softmax headwise.Softmax
}

func (x *lunaEncoder) Traits() attention.Traits {
	return attention.Traits{Name: "luna", Positive: true,
		NoCausal: "every packed token is an average of all tokens; form=causal is another function, which is causal"}
}

func (x *lunaEncoder) Setting() string       { return x.setting }
func (x *lunaEncoder) Params() *param.Set    { return x.params }
func (x *lunaEncoder) Constants() *param.Set { return nil }

func (x *lunaEncoder) Check(c *attention.Call) error {
	p := x.params.All()[0]
	if err := entry.CheckHeads("p of luna", p.Shape[0], c.Q.H); err != nil {
		return err
	}
	if c.Q.D != p.Shape[2] {
		return fmt.Errorf("q: D is %d, p of luna is of %d", c.Q.D, p.Shape[2])
	}
	return nil
}

// lunaPass holds the intermediate values of one head. Keys and values lie in the same
// rows, as do packed keys and values.
type lunaPass struct {
	kv, packed        tensor.Mat
	packLSE, queryLSE []float // log-sum-exps of the learned queries, and of the queries
	p                 tensor.Mat
	offset            int // first element of p in the parameter
}

// newPass joins keys and values and views the saved elements.
func (x *lunaEncoder) newPass(h *headwise.Head, saved []float) lunaPass {
	all := x.params.All()[0]
	l, d, w := all.Shape[1], h.K.Cols, h.K.Cols+h.V.Cols
	p := lunaPass{kv: h.TakeScratch(h.K.Rows, w), offset: min(h.Head, all.Shape[0]-1) * l * d}
	for j := range p.kv.Rows {
		copy(p.kv.Row(j), h.K.Row(j))
		copy(p.kv.Row(j)[d:], h.V.Row(j))
	}
	p.p = tensor.Mat{Data: all.Data[p.offset:][:l*d], Rows: l, Cols: d, Stride: d}
	p.packed = tensor.Mat{Data: saved[:l*w], Rows: l, Cols: w, Stride: w}
	p.packLSE, p.queryLSE = saved[l*w:][:l], saved[l*w+l:]
	return p
}

// packRows returns the operands of the softmax that packs.
func (p *lunaPass) packRows(h *headwise.Head) headwise.Rows {
	return headwise.Rows{Q: p.p, K: h.K, V: p.kv, Mask: h.Mask}
}

// unpackRows returns the operands of the softmax over packed tokens.
func (p *lunaPass) unpackRows(h *headwise.Head) headwise.Rows {
	d := h.K.Cols
	return headwise.Rows{Q: h.Q, K: entry.SliceColumns(p.packed, 0, d), V: entry.SliceColumns(p.packed, d, p.packed.Cols)}
}

func (x *lunaEncoder) Forward(h *headwise.Head) {
	l := x.params.All()[0].Shape[1]
	p := x.newPass(h, h.SaveBuffer(l*(h.K.Cols+h.V.Cols+1)+h.Q.Rows))
	x.softmax.Forward(h.Scratch, p.packed, p.packLSE, p.packRows(h))
	x.softmax.Forward(h.Scratch, h.Out, p.queryLSE, p.unpackRows(h))
}

func (x *lunaEncoder) Backward(h *headwise.Head, g *headwise.Grads) {
	p := x.newPass(h, h.Saved)
	d, w := h.K.Cols, p.kv.Cols
	dpacked, dkv, dp := h.TakeScratch(p.packed.Rows, w), h.TakeScratch(h.K.Rows, w), h.TakeScratch(p.p.Rows, d)
	x.softmax.Backward(h.Scratch, headwise.RowsGrad{
		DOut: g.DOut, DQ: g.DQ, DK: entry.SliceColumns(dpacked, 0, d), DV: entry.SliceColumns(dpacked, d, w),
	}, h.Out, p.queryLSE, p.unpackRows(h))
	x.softmax.Backward(h.Scratch, headwise.RowsGrad{DOut: dpacked, DQ: dp, DK: g.DK, DV: dkv}, p.packed, p.packLSE, p.packRows(h))
	for j := range dkv.Rows {
		h.Table.Add(g.DK.Row(j), g.DK.Row(j), dkv.Row(j)[:d])
		copy(g.DV.Row(j), dkv.Row(j)[d:])
	}
	h.Table.Add(g.Params[0][p.offset:][:len(dp.Data)], g.Params[0][p.offset:], dp.Data)
}

func (x *lunaEncoder) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv, l := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv), float64(x.params.All()[0].Shape[1])
	return headwise.Cost{
		FLOPs: 2 * l * (m*(2*d+dv) + n*(d+dv)),
		Bytes: entry.ElementBytes() * (m*(d+dv) + l*(d+dv+1) + n),
	}
}

// elu is x above 0, exp(x) - 1 below.
type elu struct{ entry.EluPlusOne }

func (elu) Positive() bool { return false }

func (elu) Map(dst, x []tensor.Float) {
	kernel.Active[float]().EluPlusOne(dst, x[:len(dst)])
	for i := range dst {
		dst[i]--
	}
}

// softplus is log2(1 + 2^x).
type softplus struct{}

func (softplus) Positive() bool { return true }

func (softplus) Map(dst, x []tensor.Float) {
	for i, v := range x[:len(dst)] {
		dst[i] = float(max(float64(v), 0) + math.Log1p(math.Exp2(-math.Abs(float64(v))))/math.Ln2)
	}
}

func (softplus) Grad(dx, dy, x []tensor.Float) {
	for i, v := range x[:len(dx)] {
		dx[i] = dy[i] * float(1/(1+math.Exp2(-float64(v))))
	}
}
