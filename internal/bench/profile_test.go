package bench

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func TestRoutines(t *testing.T) {
	const pkg = "github.com/farfield-ml/farfield/internal/"
	p := new(profile.Profile)
	at := map[string]*profile.Location{}
	sample := func(nanoseconds int64, stack ...string) {
		s := &profile.Sample{Value: []int64{1, nanoseconds}}
		for _, name := range stack {
			if at[name] == nil {
				f := &profile.Function{ID: uint64(len(at) + 1), Name: name}
				at[name] = &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
				p.Function, p.Location = append(p.Function, f), append(p.Location, at[name])
			}
			s.Location = append(s.Location, at[name])
		}
		p.Sample = append(p.Sample, s)
	}
	sample(10, pkg+"kernel.tile", pkg+"bench.(*work).round", pkg+"bench.(*Session).Round")
	sample(60, pkg+"kernel.tile", pkg+"par.(*job).run")
	sample(30, pkg+"kernel.exp", pkg+"bench.(*Session).Round")
	sample(500, pkg+"kernel.tile", pkg+"bench.(*Session).Round", pkg+"bench.(*Case).Open")
	sample(700, pkg+"kernel.FMAPeak", pkg+"bench.Peak", pkg+"bench.(*Session).Round")
	sample(800, pkg+"kernel.FMAPeak", pkg+"bench.Peak.func1")
	list := topRoutines(p)
	if len(list) != 2 || list[0].Name != "kernel.tile" || list[1].Name != "kernel.exp" ||
		math.Abs(list[0].Share-0.7) > 1e-12 || math.Abs(list[1].Share-0.3) > 1e-12 {
		t.Errorf("routines %+v", list)
	}
	if len(p.Sample) != 3 {
		t.Errorf("%d samples are left", len(p.Sample))
	}
}

func TestProfileIsWrittenAfterFailure(t *testing.T) {
	failed := errors.New("failed")
	var b bytes.Buffer
	if _, err := Profile(&b, func() error { return failed }); err != failed {
		t.Errorf("error %v", err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	if kind := p.SampleType[len(p.SampleType)-1]; kind.Type != "cpu" || !strings.HasPrefix(kind.Unit, "nano") {
		t.Errorf("samples count %s in %s", kind.Type, kind.Unit)
	}
}
