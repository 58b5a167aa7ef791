package published

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
)

// ropeFields is what config.json says of rotations, in either dialect.
type ropeFields struct {
	theta    float64
	fraction float64 // 0: all channels
	scaling  *model.RopeScaling
}

// rope reads the rotations: rope_parameters, or the members of older files. share is the
// older name of the fraction of channels that are rotated.
func (f *fields) rope(thetaName, shareName string, theta, share float64) ropeFields {
	r := ropeFields{theta: f.number(thetaName, theta), fraction: share}
	if shareName != "" {
		r.fraction = f.number(shareName, share)
	}
	f.has("original_max_position_embeddings") // without scaling it has no effect
	newer, older := f.object("rope_parameters"), f.object("rope_scaling")
	switch {
	case newer != nil && older != nil && string(f.values["rope_parameters"]) != string(f.values["rope_scaling"]):
		f.fail("rope_scaling", "is %s, but rope_parameters is %s; one of them is supported", shorten(f.values["rope_scaling"]), shorten(f.values["rope_parameters"]))
	case newer != nil:
		f.readRope(newer, &r)
	case older != nil:
		f.readRope(older, &r)
	}
	return r
}

// readRope reads an object of rotations.
func (f *fields) readRope(o *fields, r *ropeFields) {
	r.theta = o.number("rope_theta", r.theta)
	r.fraction = o.number("partial_rotary_factor", r.fraction)
	kind := o.text("type", "default")
	kind = o.text("rope_type", kind)
	if f.ropeNames[kind] != "" {
		kind = f.ropeNames[kind]
	}
	s := &model.RopeScaling{Kind: model.ScalingKind(kind)}
	switch kind {
	case "default":
		s = nil
	case "linear":
		s.Factor = o.number("factor", 0)
	case "llama3":
		s.Factor = o.number("factor", 0)
		s.OriginalContext = f.originalContext(o)
		s.LowFrequency, s.HighFrequency = o.number("low_freq_factor", 1), o.number("high_freq_factor", 4)
	case "yarn":
		s.OriginalContext = f.originalContext(o)
		s.Factor = o.number("factor", float64(f.count("max_position_embeddings", 2048))/float64(s.OriginalContext))
		s.BetaFast, s.BetaSlow = o.number("beta_fast", 0), o.number("beta_slow", 0)
		s.AttentionFactor = o.number("attention_factor", 0)
		if m, all := o.number("mscale", 0), o.number("mscale_all_dim", 0); m != 0 && all != 0 && s.AttentionFactor == 0 {
			s.AttentionFactor = yarnScale(s.Factor, m) / yarnScale(s.Factor, all)
		}
		o.needs("truncate", "true")
	case "longrope":
		s.OriginalContext = f.originalContext(o)
		s.Factor = max(o.number("factor", float64(f.count("max_position_embeddings", 2048))/float64(s.OriginalContext)), 1)
		s.AttentionFactor = o.number("attention_factor", 0)
		s.ShortFactors, s.LongFactors = o.numbers("short_factor"), o.numbers("long_factor")
	case "dynamic":
		s.Factor, s.OriginalContext = o.number("factor", 0), f.count("max_position_embeddings", 2048)
		o.has("original_max_position_embeddings") // transformers does not read it
	default:
		o.fail("rope_type", "is %q, supported are default, linear, llama3, yarn, longrope and dynamic", infile.Shorten(kind))
	}
	r.scaling = s
	if kind == "default" { // these have no effect then
		o.has("original_max_position_embeddings")
		o.has("factor")
	}
	o.has("finetuned")
	if err := o.finish(); err != nil && f.err == nil {
		f.err = err
	}
}

// readLayerRopes reads the rotations of layers without a window and with one, from rope_parameters.
func (f *fields) readLayerRopes(full, sliding *ropeFields) {
	o := f.object("rope_parameters")
	if o == nil {
		return
	}
	for _, kind := range []struct {
		name string
		to   *ropeFields
	}{{"full_attention", full}, {"sliding_attention", sliding}} {
		if r := o.object(kind.name); r != nil {
			f.readRope(r, kind.to)
		}
	}
	if err := o.finish(); err != nil && f.err == nil {
		f.err = err
	}
}

// setLayerRopes sets the rotations of layers without a window and with one.
func (f *fields) setLayerRopes(c *model.Config, full, sliding ropeFields) {
	if sliding.scaling != nil || full.fraction != 0 || sliding.fraction != 0 {
		f.fail("rope_parameters", "layers with a window are scaled or partial, which is not supported")
	}
	c.RopeTheta, c.RopeScaling = full.theta, full.scaling
	if c.LayerWindows != nil {
		c.LocalRopeTheta = sliding.theta
	}
}

// originalContext returns the tokens before scaling: a member of config.json or of its object of
// rotations, without both max_position_embeddings.
func (f *fields) originalContext(o *fields) int {
	const name = "original_max_position_embeddings"
	n := o.count(name, f.count("max_position_embeddings", 2048))
	return f.count(name, n)
}

// yarnScale returns the factor of rotations that YaRN has for frequencies over factor, and a weight
// of its logarithm.
func yarnScale(factor, weight float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 1 + 0.1*weight*math.Log(factor)
}

// windowSpan returns sliding_window: byDefault without the member, 0 if it is null.
func (f *fields) windowSpan(byDefault int) int {
	_, given := f.values["sliding_window"]
	if has := f.has("sliding_window"); given && !has || !has && byDefault == 0 {
		return 0
	}
	return f.count("sliding_window", byDefault)
}

// windows returns the spans of layers, nil where no layer has a window. types is the
// name of the list of kinds of layers. Without it, local says which layers have the span.
func (f *fields) windows(layers, span int, local func(layer int) bool) []int {
	var types []string
	listed := f.decode("layer_types", "a list of names", &types)
	if listed && len(types) != layers {
		f.fail("layer_types", "has %d names, there are %d layers", len(types), layers)
		return nil
	}
	w := make([]int, layers)
	some := false
	for i := range w {
		is := local(i)
		if listed {
			switch types[i] {
			case "full_attention":
				is = false
			case "sliding_attention":
				is = true
			default:
				f.fail("layer_types", "has %q, supported are full_attention and sliding_attention", infile.Shorten(types[i]))
			}
		}
		if is && span < 1 {
			f.fail("layer_types", "layer %d has a window, but sliding_window is missing", i)
			return nil
		}
		if is {
			w[i], some = span, true
		}
	}
	if !some {
		return nil
	}
	return w
}

// positionName is the parameter of learned positions.
const positionName = "position.weight"

// maxStretch bounds the factor by which a table of positions is stretched.
const maxStretch = 16

// stretchedTable describes a table of learned positions with stretched copies after it:
// copy f has f times the positions, for f = 2, 4, … maxStretch.
type stretchedTable struct {
	rows   int // of the table itself; 0: it is not stretched
	first  int // row of the first position
	length int // positions of the table
}

// plan enlarges the table of a plan.
func (t *stretchedTable) plan(p *plan) {
	c := &p.config
	if c.Positions != model.Learned || c.Kind != model.Encoder || c.Inputs > 0 {
		return
	}
	t.rows, t.first, t.length = c.Context+c.PositionOffset, c.PositionOffset, c.Context
	if c.PositionTable > 0 {
		t.rows = c.PositionTable
	}
	c.PositionTable = t.rows + t.length*(2*maxStretch-2)
	c.Context = t.length * maxStretch
}

// fill sets the stretched copies by linear interpolation. Numbers that are right are not
// written, as others may read them.
func (t *stretchedTable) fill(m *model.Model) {
	if t.rows == 0 {
		return
	}
	p, err := m.Params().Get(positionName)
	if err != nil {
		return
	}
	w := p.Shape[1]
	t.eachRow(func(row, low int, share float32) {
		a, b := p.Data[low*w:][:w], p.Data[min(low+1, t.rows-1)*w:][:w]
		for j := range a {
			if x := (1-share)*a[j] + share*b[j]; p.Data[row*w+j] != x {
				p.Data[row*w+j] = x
			}
		}
	})
}

// foldGradients moves the gradients of the stretched copies to the table p.
func (t *stretchedTable) foldGradients(p *param.Param) {
	w := p.Shape[1]
	t.eachRow(func(row, low int, share float32) {
		next := min(low+1, t.rows-1)
		for j, d := range p.Grad[row*w:][:w] {
			p.Grad[low*w+j] += (1 - share) * d
			p.Grad[next*w+j] += share * d
		}
		clear(p.Grad[row*w:][:w])
	})
}

// eachRow calls f with every stretched row: it is 1-share of row low and share of the next.
func (t *stretchedTable) eachRow(f func(row, low int, share float32)) {
	at := t.rows
	for factor := 2; factor <= maxStretch; factor *= 2 {
		n := factor * t.length
		for i := range n {
			x := float64(i) * float64(t.length-1) / float64(n-1)
			low := int(x)
			f(at+i, t.first+low, float32(x-float64(low)))
		}
		at += n
	}
}

// firstRow returns the row of the first position of sequences of n tokens. It returns an
// error if no table is long enough.
func (t *stretchedTable) firstRow(n int) (int, error) {
	if n <= t.length {
		return t.first, nil
	}
	at := t.rows
	for factor := 2; factor <= maxStretch; factor *= 2 {
		if n <= factor*t.length {
			return at, nil
		}
		at += factor * t.length
	}
	return 0, fmt.Errorf("positions: %d are needed, the learned table has %d and is stretched to %d", n, t.length, maxStretch*t.length)
}
