package bench

import (
	"bytes"
	"cmp"
	"io"
	"reflect"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Routine is a function and its own share of the time of a profile.
type Routine struct {
	Name  string // with its package
	Share float64
}

// Profile writes where the processor's time goes while f calls Measure, in the
// format of go tool pprof, and returns the routines in the order of their
// shares. What is no part of a case is left out: its preparation and the peak.
// It returns the error of f after the profile is written.
func Profile(w io.Writer, f func() error) ([]Routine, error) {
	var raw bytes.Buffer
	if err := pprof.StartCPUProfile(&raw); err != nil {
		return nil, err
	}
	failed := f()
	pprof.StopCPUProfile()
	p, err := profile.Parse(&raw)
	if err != nil {
		return nil, err
	}
	list := topRoutines(p)
	if err := p.Write(w); err != nil {
		return nil, err
	}
	return list, failed
}

// aside matches the functions that Measure calls beside the cases.
var aside = regexp.MustCompile("^(" + regexp.QuoteMeta(routineName((*Case).Open)) + "|" + regexp.QuoteMeta(routineName(Peak)) + `)(\.|$)`)

// routineName is what a profile calls a function.
func routineName(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }

// topRoutines leaves out of p what is no part of a case, and sums the rest by the
// function that each sample was taken in.
func topRoutines(p *profile.Profile) []Routine {
	p.FilterSamplesByName(nil, aside, nil, nil)
	own := map[string]float64{}
	all := 0.0
	for _, s := range p.Sample {
		t := float64(s.Value[len(s.Value)-1])
		all += t
		if len(s.Location) > 0 && len(s.Location[0].Line) > 0 {
			own[s.Location[0].Line[0].Function.Name] += t
		}
	}
	var list []Routine
	for name, t := range own {
		list = append(list, Routine{name[strings.LastIndex(name, "/")+1:], t / all})
	}
	slices.SortFunc(list, func(a, b Routine) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.Name, b.Name))
	})
	return list
}
