package golden

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var clusteredGroup = zooGroup{name: "clustered", needs: []string{"planes", "init_idx", "iterations", "scale", "kind"},
	arrays: []string{"hashes", "groups", "counts", "centroids", "query_lengths", "topk", "mass_bottom", "dref_q", "dref_k", "dref_v"},
	read: func(r *reader, p *problem) string {
		set := map[string]string{"iterations": strconv.Itoa(r.integer("iterations")), "scale": formatNumber(r.scalar("scale"))}
		top := 0
		switch kind := r.integer("kind"); {
		case kind == 0:
			p.mechanism = "clustered"
		case kind == 1:
			shape := r.shape("topk")
			if len(shape) != 4 {
				return fmt.Sprintf("topk has shape %v, needs [batch, heads, clusters, keys]", shape)
			}
			p.mechanism, top = "improved-clustered", shape[3]
			set["topk"] = strconv.Itoa(top)
		default:
			return "it is not causal: clusters are made of later queries, too"
		}
		shape, places := r.shape("planes"), r.integers("init_idx")
		if len(shape) != 2 || shape[1] != p.call.Q.D+1 {
			return fmt.Sprintf("planes has shape %v, needs [bits, %d]", shape, p.call.Q.D+1)
		}
		set["bits"], set["clusters"] = strconv.Itoa(shape[0]), strconv.Itoa(len(places))
		p.constants(r, "planes")
		p.options = mechanism.Options{Width: p.call.Q.D, Set: set}
		start := func(queries int) []float64 { // the middle of the range that rounds to an index
			x := make([]float64, len(places))
			for c, at := range places {
				x[c] = (float64(at) + 0.5) / float64(queries)
			}
			return x
		}
		p.forms = p.wholeForms()
		if r.f.hasArray("query_lengths") {
			p.queriesApart(r.integers("query_lengths"), "start", start)
			return ""
		}
		p.numbers["start"] = start(p.call.Q.N)
		p.headMatrix = oracle.NewClustered(p.numbers["planes"], p.numbers["start"], r.integer("iterations"), top, r.scalar("scale"))
		return ""
	}}

// exactTopKGroup is what clusters are measured against.
var exactTopKGroup = zooGroup{name: "clustered", needs: []string{"topk", "scale"}, read: func(r *reader, p *problem) string {
	k, scale := r.integer("topk"), r.scalar("scale")
	p.mechanism, p.options = "exact-topk", mechanism.Options{Set: map[string]string{"topk": strconv.Itoa(k), "scale": formatNumber(scale)}}
	p.headMatrix, p.forms = oracle.ExactTopK(k, scale), p.wholeForms()
	return ""
}}

// queriesApart computes each batch row by itself, with as many queries as it has.
// Others have the output 0. A constant depends on their number.
func (p *problem) queriesApart(lens []int, constant string, of func(queries int) []float64) {
	p.compute = func() (map[string][]float64, error) {
		return queriesApart(p, lens, constant, of)
	}
}

func queriesApart(p *problem, lens []int, constant string, of func(queries int) []float64) (map[string][]float64, error) {
	if len(lens) != p.call.Q.B || slices.Min(lens) < 1 || slices.Max(lens) > p.call.Q.N {
		return nil, fmt.Errorf("query_lengths: %v, q has %d batch rows of %d", lens, p.call.Q.B, p.call.Q.N)
	}
	byArray := map[string][]float64{}
	for b, n := range lens {
		one := p.batchRow(b)
		one.numbers[constant] = of(n)
		one.call.Q, one.do = one.call.Q.Tokens(0, n), one.do.Tokens(0, n)
		m, c, err := prepareCall(one)
		if err != nil {
			return nil, err
		}
		got, err := computeResults(m, c, convertHeads(one.do))
		if err != nil {
			return nil, err
		}
		for _, e := range p.want {
			x := widenRows(got[e.what])
			if e.what == "o" || e.what == "dq" {
				width := len(x) / (p.call.Q.H * n)
				for h := range p.call.Q.H {
					byArray[e.array] = append(byArray[e.array], x[h*n*width:(h+1)*n*width]...)
					byArray[e.array] = append(byArray[e.array], make([]float64, (p.call.Q.N-n)*width)...)
				}
				continue
			}
			byArray[e.array] = append(byArray[e.array], x...)
		}
	}
	return byArray, nil
}
