package golden

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// evaNames are the arrays of eva's parameters.
var evaNames = [][2]string{
	{"mq", "Wmq_w"}, {"mq_bias", "Wmq_b"}, {"lnq", "lnq_w"}, {"lnq_bias", "lnq_b"},
	{"mk", "Wmk_w"}, {"mk_bias", "Wmk_b"}, {"lnk", "lnk_w"}, {"lnk_bias", "lnk_b"},
}

var evaGroup = zooGroup{name: "eva",
	needs: []string{"Wmq_w", "Wmq_b", "lnq_w", "lnq_b", "Wmk_w", "Wmk_b", "lnk_w", "lnk_b", "window", "ext"},
	arrays: []string{"rf_window", "chunk", "lengths", "rpe", "noise", "beta", "k_bar",
		"d_Wmq_w", "d_Wmq_b", "d_lnq_w", "d_lnq_b", "d_Wmk_w", "d_Wmk_b", "d_lnk_w", "d_lnk_b", "d_rpe"},
	read: func(r *reader, p *problem) string {
		window, overlap := r.integer("window"), r.integer("ext")
		book := &oracle.EVA{Window: window, Overlap: overlap, Zeros: true}
		set := map[string]string{"window": strconv.Itoa(window), "overlap": strconv.Itoa(overlap), "form": "code"}
		if r.f.hasArray("rf_window") {
			size := r.integer("rf_window")
			if p.call.Q.N%max(size, 1) != 0 {
				return fmt.Sprintf("%d tokens are not chunks of %d", p.call.Q.N, size)
			}
			book.Landmarks = p.call.Q.N / max(size, 1)
			set["landmarks"] = strconv.Itoa(book.Landmarks)
		} else {
			p.call.Causal, book.Chunk = true, r.integer("chunk")
			set["chunk"] = strconv.Itoa(book.Chunk)
		}
		p.numbers = map[string][]float64{}
		for _, x := range evaNames {
			p.numbers[x[0]] = r.floats(x[1])
			p.result(r, "d"+x[0], "d_"+x[1])
		}
		if r.f.hasArray("rpe") {
			set["rpe"] = "true"
			p.parameters(r, "rpe")
		}
		if r.f.hasArray("lengths") {
			p.call.KeyLens = r.ints("lengths")
		}
		p.mechanism, p.options = "eva", mechanism.Options{Heads: p.call.Q.H, Width: p.call.Q.D, Set: set}
		p.forms = p.wholeForms()
		if r.f.hasArray("noise") { // of each batch row its own
			set["noise"] = "normal"
			p.rowsApart("noise", r.floats("noise"))
			return ""
		}
		n := p.numbers
		book.RPE = n["rpe"]
		book.MapQ = oracle.EVAMap{W: n["mq"], B: n["mq_bias"], Gain: n["lnq"], Bias: n["lnq_bias"]}
		book.MapK = oracle.EVAMap{W: n["mk"], B: n["mk_bias"], Gain: n["lnk"], Bias: n["lnk_bias"]}
		p.headMatrix = book.Weights
		return ""
	}}

// rowsApart computes each batch row by itself, with its own part of a constant that the
// file holds once a row.
func (p *problem) rowsApart(constant string, all []float64) {
	p.compute = func() (map[string][]float64, error) {
		return computeByRow(p, constant, all)
	}
}

func computeByRow(p *problem, constant string, all []float64) (map[string][]float64, error) {
	byArray := map[string][]float64{}
	rows := p.call.Q.B
	for b := range rows {
		one := p.batchRow(b)
		one.numbers[constant] = all[b*len(all)/rows : (b+1)*len(all)/rows]
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
			switch sum := byArray[e.array]; {
			case len(x) < len(e.ref): // of tokens
				byArray[e.array] = append(sum, x...)
			case sum == nil:
				byArray[e.array] = x
			default:
				for i := range sum {
					sum[i] += x[i]
				}
			}
		}
	}
	return byArray, nil
}

// batchRow is the problem of one row of the batch.
func (p *problem) batchRow(b int) *problem {
	one := *p
	one.numbers = maps.Clone(p.numbers)
	one.call.Q, one.call.K, one.call.V, one.do = batchRow(p.call.Q, b), batchRow(p.call.K, b), batchRow(p.call.V, b), batchRow(p.do, b)
	if p.call.KeyLens != nil {
		one.call.KeyLens = p.call.KeyLens[b : b+1]
	}
	return &one
}

// batchRow views a row of a batch.
func batchRow(x oracle.Heads, b int) oracle.Heads {
	if x.Data != nil {
		x.Data = x.Data[b*x.SB : (b+1)*x.SB]
		x.B = 1
	}
	return x
}
