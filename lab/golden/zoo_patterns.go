package golden

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var localGroup = zooGroup{name: "local", needs: []string{"window", "scale"}, arrays: []string{"back", "fwd", "exact"},
	read: func(r *reader, p *problem) string {
		scale, w := r.scalar("scale"), r.integer("window")
		set := map[string]string{"scale": formatNumber(scale), "window": strconv.Itoa(w)}
		p.headMatrix = oracle.NewLocal(w, scale)
		if r.f.hasArray("back", "fwd") {
			back, forward, exact := r.integer("back"), r.integer("fwd"), r.f.hasArray("exact") && r.truth("exact")
			set["form"], set["back"], set["forward"], set["exact"] = "block", strconv.Itoa(back), strconv.Itoa(forward), strconv.FormatBool(exact)
			p.headMatrix = oracle.LocalBlocks(w, back, forward, exact, scale)
		}
		p.pattern("local", set)
		return ""
	}}

var patternsGroup = zooGroup{name: "patterns", needs: []string{"scale"},
	arrays: []string{"stride", "c", "window", "global_tokens", "span", "ramp", "d_span", "segments", "ratios", "r", "u", "vb", "mem", "d_r", "d_u", "d_vb"},
	read: func(r *reader, p *problem) string {
		scale := r.scalar("scale")
		set := map[string]string{"scale": formatNumber(scale)}
		switch f := r.f; {
		case f.hasArray("segments", "ratios"):
			segments, ratios := r.integers("segments"), r.integers("ratios")
			set["segments"], set["ratios"], set["form"] = listNumbers(segments), listNumbers(ratios), "code"
			p.headMatrix = oracle.LongNet(segments, ratios, true, scale)
			p.pattern("longnet", set)
		case f.hasArray("span", "ramp"):
			p.parameters(r, "span")
			set["ramp"], p.call.Causal = formatNumber(r.scalar("ramp")), true
			p.headMatrix = oracle.AdaptiveSpan(p.numbers["span"], r.scalar("ramp"), 1024, scale)
			p.pattern("adaptive-span", set)
		case f.hasArray("window", "global_tokens"):
			w, globals := r.integer("window"), r.integers("global_tokens")
			set["window"], set["global"] = strconv.Itoa(w), listNumbers(globals)
			p.headMatrix = oracle.NewLongformer(w, globals, scale)
			p.pattern("longformer", set)
		case f.hasArray("stride", "c"):
			s, c := r.integer("stride"), r.integer("c")
			set["stride"], set["c"], p.call.Causal = strconv.Itoa(s), strconv.Itoa(c), true
			p.headMatrix = oracle.SparseFixed(s, c, scale)
			p.pattern("sparse-fixed", set)
		case f.hasArray("stride"):
			set["stride"], p.call.Causal = strconv.Itoa(r.integer("stride")), true
			p.headMatrix = oracle.SparseStrided(r.integer("stride"), scale)
			p.pattern("sparse-strided", set)
		case f.hasArray("r", "u", "vb"):
			shape := r.shape("r")
			if len(shape) != 3 {
				return fmt.Sprintf("r has shape %v, needs [heads, distances, width]", shape)
			}
			p.parameters(r, "r", "u", "vb")
			set["memory"], p.call.Causal = strconv.Itoa(shape[1]), true
			p.headMatrix = oracle.TransformerXL(p.numbers["r"], p.numbers["u"], p.numbers["vb"], shape[0], shape[1], shape[2], scale)
			p.pattern("transformer-xl", set)
		default:
			return "no mechanism here computes it"
		}
		return ""
	}}

// pattern sets the mechanism of p and the forms that it has.
func (p *problem) pattern(name string, set map[string]string) {
	p.mechanism, p.options = name, mechanism.Options{Heads: p.call.Q.H, Width: p.call.Q.D, Set: set}
	p.forms = p.wholeForms()
}

// integer returns the only element of an array of integers.
func (r *reader) integer(name string) int {
	x := r.integers(name)
	if r.err == nil && len(x) != 1 {
		r.err = fmt.Errorf("%s: has %d elements, needs 1", name, len(x))
	}
	if r.err != nil {
		return 0
	}
	return x[0]
}

func (r *reader) integers(name string) []int {
	var list []int
	for _, x := range r.ints(name) {
		list = append(list, int(x))
	}
	return list
}

func listNumbers(x []int) string {
	var list []string
	for _, n := range x {
		list = append(list, strconv.Itoa(n))
	}
	return strings.Join(list, ",")
}
