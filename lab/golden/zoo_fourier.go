package golden

import (
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var fourierGroup = zooGroup{name: "fourier", needs: []string{"R", "eps", "cpu_scale"}, arrays: []string{"score", "d_R"},
	read: func(r *reader, p *problem) string {
		p.parameters(r, "R")
		p.mechanism, p.options = "fourier", mechanism.Options{Width: p.call.Q.D, Set: map[string]string{
			"eps": formatNumber(r.scalar("eps")), "scaled": strconv.FormatBool(r.truth("cpu_scale")),
			"channels": strconv.FormatBool(len(p.numbers["R"]) > 1),
		}}
		p.headMatrix = oracle.NewFourier(p.numbers["R"], r.scalar("eps"), r.truth("cpu_scale"))
		p.forms = p.wholeForms()
		return ""
	}}
