package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

// claimed has the samples of a source, and a specification that need not fit them.
type claimed struct {
	task.Source
	spec task.Spec
}

func (c *claimed) Spec() task.Spec { return c.spec }

// eachField calls f with every number below v, which f may change.
func eachField(v reflect.Value, name string, f func(name string, number reflect.Value)) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		f(name, v)
	case reflect.Pointer:
		if !v.IsNil() {
			eachField(v.Elem(), name, f)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachField(v.Index(i), fmt.Sprintf("%s[%d]", name, i), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				eachField(v.Field(i), name+"."+field.Name, f)
			}
		}
	}
}

// setField sets field number at below v to number k of some odd values. It returns a
// description, "" if there is no such field, and whether there is no such value.
func setField(v reflect.Value, at, k int) (name string, done bool) {
	ints := []int64{0, -1, 1, 2, 3, math.MinInt64, math.MaxInt64}
	floats := []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-320, math.MaxFloat64}
	i := 0
	eachField(v, "", func(field string, x reflect.Value) {
		if i++; i-1 != at {
			return
		}
		if x.Kind() == reflect.Float64 {
			if done = k >= len(floats); !done {
				x.SetFloat(floats[k])
			}
		} else if done = k >= len(ints); !done {
			x.SetInt(ints[k])
		}
		name = fmt.Sprintf("%s = %v", field, x)
	})
	return name, done
}

// tryRun makes a run and its first updates. It returns a panic as an error.
func tryRun(c Config, src task.Source) (panicked any, err error) {
	defer func() { panicked = recover() }()
	r, err := New(c, src, "")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	score, err := r.Train(ctx, Observer{Step: func(s Step) {
		if s.Step == 2 && r.Config().Steps > 2 {
			cancel()
		}
	}})
	if err == nil && (math.IsNaN(score.Loss) || math.IsNaN(score.Value)) {
		err = fmt.Errorf("the score is %+v", score)
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return nil, err
}

// New checks the numbers of a specification and of a configuration: a run is refused, or
// goes on to the end. None of them is a panic.
func TestOddNumbersAreRefusedOrLearned(t *testing.T) {
	t.Parallel()
	refused, learned := 0, 0
	try := func(name string, c Config, src task.Source) {
		t.Helper()
		panicked, err := tryRun(c, src)
		switch {
		case panicked != nil:
			t.Errorf("%s: panics: %v", name, panicked)
		case err == nil:
			learned++
		case strings.Contains(err.Error(), "NaN") && !strings.Contains(name, "NaN"):
			t.Errorf("%s: %v", name, err)
		default:
			refused++
		}
	}
	for kind, src := range kinds() {
		if !suite.IsLong() && kind != "class" && kind != "regression" && kind != "trace" {
			continue
		}
		base := littleTask(src, "softmax")
		base.Steps, base.EvalEvery, base.SaveEvery = 2, 1, 0
		if panicked, err := tryRun(base, src); err != nil || panicked != nil {
			t.Fatalf("%s: %v, %v", kind, err, panicked)
		}
		for at := 0; ; at++ {
			end := false
			for k := 0; ; k++ {
				spec := src.spec
				name, done := setField(reflect.ValueOf(&spec).Elem(), at, k)
				if end = name == ""; end || done {
					break
				}
				try(kind+": task"+name, base, &claimed{src, spec})
			}
			if end {
				break
			}
		}
		for _, metric := range []task.Metric{"", "mse", task.Accuracy, task.MSE, task.Nats, task.Bits} {
			if kind != "class" && !suite.IsLong() {
				break // checks of the specification do not depend on the kind before
			}
			for _, of := range []task.Kind{-1, task.Class, task.Regression, task.Labels, task.Next, task.Trace, task.Level, 99} {
				spec := src.spec
				spec.Metric, spec.Kind = metric, of
				try(fmt.Sprintf("%s: metric %q, kind %v", kind, metric, of), base, &claimed{src, spec})
			}
		}
		if kind != "class" && kind != "regression" && kind != "next" {
			continue
		}
		for at := 0; ; at++ {
			end := false
			for k := 0; ; k++ {
				c := base.clone()
				name, done := setField(reflect.ValueOf(&c).Elem(), at, k)
				if end = name == ""; end || done {
					break
				}
				try(kind+": "+name, c, src)
			}
			if end {
				break
			}
		}
	}
	t.Logf("%d are refused, %d learned", refused, learned)
}

func TestSourcesAreHeldToTheirSpecification(t *testing.T) {
	t.Parallel()
	whole := kinds()["class"]
	c := littleTask(whole, "softmax")
	alone := whole.spec
	alone.Parts = 0
	if panicked, err := tryRun(c, &claimed{whole, alone}); err != nil || panicked != nil {
		t.Errorf("parts of 0: %v, %v", err, panicked)
	}
	for name, x := range map[string]struct {
		kind   string
		change func(s *task.Spec)
		want   string
	}{
		"classes": {"next", func(s *task.Spec) { s.Classes = 0 }, "task next: classes is 0"},
		"metric":  {"next", func(s *task.Spec) { s.Metric = "mse" }, `task next: metric is "mse"`},
		"tokens":  {"next", func(s *task.Spec) { s.Vocab = 3 }, "task next: tokens: element "},
		"labels":  {"labels", func(s *task.Spec) { s.Classes = 2 }, "task labels: labels: element "},
		"class":   {"class", func(s *task.Spec) { s.Classes = 1 }, "task class: class is "},
		"length":  {"class", func(s *task.Spec) { s.Length = 3 }, "task class: a sample has "},
		"targets": {"trace", func(s *task.Spec) { s.Outputs = 1 }, "task trace: targets: has "},
		"values":  {"patches", func(s *task.Spec) { s.Channels = 2 }, "task patches: "},
		"parts":   {"pairs", func(s *task.Spec) { s.Parts = 3 }, "task pairs: parts is 3"},
	} {
		src := kinds()[x.kind]
		c := littleTask(src, "softmax")
		c.Standardise = false
		spec := src.spec
		x.change(&spec)
		if panicked, err := tryRun(c, &claimed{src, spec}); panicked != nil || err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error is %v (%v), needs %q", name, err, panicked, x.want)
		}
	}
	if _, _, err := (Config{Model: model.Config{}}).PrepareTask(nil); err == nil || err.Error() != "source: is nil" {
		t.Errorf("no source: %v", err)
	}
}
