package golden

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var informerGroup = zooGroup{name: "informer", needs: []string{"factor", "index_sample"}, arrays: []string{"top", "M"},
	read: func(r *reader, p *problem) string {
		if p.call.Causal {
			return "it is not causal: which queries are computed depends on later tokens"
		}
		factor, shape := r.integer("factor"), r.shape("index_sample")
		if len(shape) != 2 {
			return fmt.Sprintf("index_sample has shape %v, needs [queries, samples]", shape)
		}
		keys, length := p.call.K.N, max(p.call.Q.N, p.call.K.N)
		columns := min(length, max(1, factor*int(math.Ceil(math.Log(float64(length))))))
		if shape[1] > columns {
			return fmt.Sprintf("index_sample has %d columns, factor %d gives %d", shape[1], factor, columns)
		}
		sample := make([]float64, length*columns)
		for i, j := range r.ints("index_sample") {
			sample[i/shape[1]*columns+i%shape[1]] = (float64(j) + 0.5) / float64(keys)
		}
		p.numbers = map[string][]float64{"sample": sample}
		p.mechanism, p.options = "informer", mechanism.Options{Length: length, Set: map[string]string{
			"factor": strconv.Itoa(factor), "form": "code", "sample": "stored",
		}}
		p.headMatrix = oracle.NewInformer(factor, true, func(token, s int) float64 { return sample[token*columns+s] })
		p.forms = p.wholeForms()
		return ""
	}}
