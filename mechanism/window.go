package mechanism

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
)

// Settings of rows that can have an exact softmax window beside the mechanism, as in
// LoLCATs (arXiv 2410.10254) and Based (arXiv 2402.18668).
var (
	windowSetting = Setting{"window", "0", "tokens of a window of weights exp(q·k/√D) beside these; 0: none"}
	joinSetting   = Setting{"join", "denominator", "how the window is joined: " + strings.Join(joinNames(), " (the mechanism weighs the keys before it), ") + " (all keys)"}
	gammaSetting  = Setting{"gamma", "1", "what the factor γ of the window's weights starts from, a number, learned for each head"}
	logGamma      = Param{"log_gamma", "(H)", "logarithm of the factor γ of each query head's window, unless the setting window is 0"}
)

// maxWindow is the largest width of a window.
const maxWindow = 1 << 20

// setWindow sets s.Window and extends s.Setting by the settings window, join and gamma.
// It does nothing if the width is 0.
func setWindow(r *reader, s *attention.Spec) error {
	width, err := strconv.Atoi(r.Text("window"))
	if err != nil || width < 0 || width > maxWindow {
		return r.Refuse("window", fmt.Sprintf("a number of tokens from 0 to %d", maxWindow))
	}
	join, err := r.join()
	if err != nil {
		return err
	}
	gamma, err := strconv.ParseFloat(r.Text("gamma"), 64)
	if err != nil || !(gamma >= 1e-30 && gamma <= 1e30) {
		return r.Refuse("gamma", "a number from 1e-30 to 1e30")
	}
	if width == 0 {
		for _, name := range []string{"join", "gamma"} {
			if _, given := r.o.Set[name]; given {
				return r.Refuse(name, "a window, and the setting window is 0")
			}
		}
		return nil
	}
	heads := max(r.o.Heads, 1)
	p := &param.Param{Name: "log_gamma", Shape: []int{heads}, Data: make([]float, heads), Grad: make([]float, heads)}
	for h := range p.Data {
		p.Data[h] = float(math.Log(gamma))
	}
	// γ is not part of the setting: it multiplies weights of queries, and states hold
	// keys.
	s.Setting += fmt.Sprintf(" window=%d join=%v", width, join)
	s.Window = &attention.Window{Width: width, Join: join, LogGamma: p}
	return nil
}

func joinNames() []string {
	var names []string
	for _, j := range attention.Joins() {
		names = append(names, j.String())
	}
	return names
}

func (r *reader) join() (attention.Join, error) {
	for _, j := range attention.Joins() {
		if j.String() == r.Text("join") {
			return j, nil
		}
	}
	return 0, r.Refuse("join", "one of "+strings.Join(joinNames(), ", "))
}
