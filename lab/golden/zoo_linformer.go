package golden

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var linformerGroup = zooGroup{name: "linformer", needs: []string{"E"}, arrays: []string{"F", "scale", "share", "attn", "d_E", "d_F"},
	read: func(r *reader, p *problem) string {
		shape := r.shape("E")
		if len(shape) != 2 {
			return fmt.Sprintf("E has shape %v, needs [tokens, rank]", shape)
		}
		if d := float64(p.call.Q.D); math.Abs(r.scalar("scale")*math.Sqrt(d)-1) > 1e-12 {
			return "scale is not 1/√D, the only one that linformer has"
		}
		set := map[string]string{"rank": strconv.Itoa(shape[1]), "columns": "all"}
		p.parameters(r, "E")
		if r.f.hasArray("F") {
			p.parameters(r, "F")
		} else {
			set["share"] = "kv"
		}
		values := p.numbers["E"]
		if r.f.hasArray("F") {
			values = p.numbers["F"]
		}
		p.headMatrix = oracle.NewLinformer(p.numbers["E"], values, shape[0], shape[1], false, true)
		p.mechanism, p.options = "linformer", mechanism.Options{Length: shape[0], Set: set}
		p.forms = p.wholeForms()
		return ""
	}}
