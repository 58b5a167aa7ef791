package pretrained

import (
	"strings"

	"github.com/farfield-ml/farfield/model"
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
	newer, older := f.object("rope_parameters"), f.object("rope_scaling")
	switch {
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
	s := &model.RopeScaling{Kind: kind}
	switch kind {
	case "default":
		s = nil
	case "linear":
		s.Factor = o.number("factor", 0)
	case "llama3":
		s.Factor = o.number("factor", 0)
		s.OriginalContext = o.count("original_max_position_embeddings", 0)
		s.LowFrequency, s.HighFrequency = o.number("low_freq_factor", 1), o.number("high_freq_factor", 4)
	case "yarn":
		s.Factor = o.number("factor", 0)
		s.OriginalContext = o.count("original_max_position_embeddings", f.count("max_position_embeddings", 2048))
		s.BetaFast, s.BetaSlow = o.number("beta_fast", 0), o.number("beta_slow", 0)
		s.AttentionFactor = o.number("attention_factor", 0)
		o.needs("truncate", "true")
	default:
		o.fail("rope_type", "is %q, supported are default, linear, llama3 and yarn", kind)
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
				f.fail("layer_types", "has %q, supported are full_attention and sliding_attention", strings.TrimSpace(types[i]))
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
