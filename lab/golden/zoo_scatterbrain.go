package golden

import (
	"fmt"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var scatterbrainGroup = zooGroup{name: "scatterbrain", needs: []string{"W", "scale", "support"},
	arrays: []string{"attn", "window", "cluster", "alpha", "beta", "q_order", "k_order"},
	read: func(r *reader, p *problem) string {
		shape := r.shape("W")
		if len(shape) != 2 || shape[1] != p.call.Q.D {
			return fmt.Sprintf("W has shape %v, needs [rows, %d]", shape, p.call.Q.D)
		}
		book := &oracle.Scatterbrain{W: r.floats("W"), Scale: r.scalar("scale")}
		p.numbers = map[string][]float64{"projection": book.W}
		set := map[string]string{"scale": formatNumber(book.Scale), "features": strconv.Itoa(shape[0])}
		if r.f.hasArray("window") {
			book.Window = r.integer("window")
			set["window"] = strconv.Itoa(book.Window)
		} else {
			// What beta adds to the projections of all tokens does not change their order.
			book.Cluster, book.Alpha = r.integer("cluster"), r.floats("alpha")
			if n := p.call.Q.D + 2; len(book.Alpha) != n {
				return fmt.Sprintf("sorted %d times: one round is built here", len(book.Alpha)/n)
			}
			set["support"], set["cluster"], p.numbers["alpha"] = "lsh", strconv.Itoa(book.Cluster), book.Alpha
		}
		p.mechanism, p.options = "scatterbrain", mechanism.Options{Width: p.call.Q.D, Set: set}
		p.headMatrix, p.forms = book.Weights, p.wholeForms()
		return ""
	}}
