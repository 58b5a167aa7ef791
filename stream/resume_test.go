//go:build !float64

package stream

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
)

// interrupted is a reader during whose first read a context ends.
type interrupted struct {
	ctx  context.Context
	stop context.CancelFunc
}

func (i interrupted) Read([]byte) (int, error) {
	i.stop()
	return 0, context.Cause(i.ctx)
}

func TestRestartRemovesCheckpointsAlone(t *testing.T) {
	t.Parallel()
	p := problems[0]
	m, in, dir := p.mechanism(t), file(t, p.call()), t.TempDir()
	out, saved := filepath.Join(dir, "o.npy"), filepath.Join(dir, "saved")
	for _, c := range []struct{ content, want string }{
		{"numbers of somebody", `saved: checkpoint: begins with "numb", not "FFSC"; it is not removed`},
		{"FF", `begins with "FF", not "FFSC"`},
		{"", ""},
		{"FFSC and damage", ""},
	} {
		if err := os.WriteFile(saved, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), m, source(t, in), output(t, out, 4), Options{Causal: true, Checkpoint: saved, Restart: true})
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.content, err)
			}
			continue
		}
		refused(t, err, c.want)
		if got, err := os.ReadFile(saved); !errors.Is(err, fault.ErrInput) && string(got) != c.content {
			t.Errorf("%q has become %q, %v", c.content, got, err)
		}
	}
}

func TestCheckpointIsNotTheUnfinishedOutput(t *testing.T) {
	t.Parallel()
	p := problems[0]
	dir := t.TempDir()
	out := filepath.Join(dir, "o.npy")
	_, err := Run(t.Context(), p.mechanism(t), source(t, file(t, p.call())), output(t, out, 4),
		Options{Causal: true, Checkpoint: dir + "/./o.npy" + PartialSuffix})
	refused(t, err, "o.npy.partial: is the unfinished output")
}

func TestInterruptedSkipIsTheErrorOfTheContext(t *testing.T) {
	t.Parallel()
	p := problem{name: "fastmax", shape: Shape{1, 4, 2, 301, 301, 6, 5}, causal: true}
	m, data := p.mechanism(t), array.FloatBytes(records(p.call()))
	pipe := func(ctx context.Context, stop context.CancelFunc) *rawSource {
		from := bytes.NewReader(data)
		r, err := NewPipeSource(from, Shape{H: 4, Hkv: 2, D: 6, Dv: 5})
		if err != nil {
			t.Fatal(err)
		}
		raw := r.(*rawSource)
		if stop != nil {
			raw.pipe = infile.NewReader(ctx, interrupted{ctx, stop})
		}
		return raw
	}
	out := filepath.Join(t.TempDir(), "o.raw")
	o := Options{Causal: true, Window: 50, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
	first, err := Run(t.Context(), m, &cut{pipe(nil, nil), 150}, output(t, out, 0), o)
	if !errors.Is(err, errBrittle) {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := Run(ctx, m, pipe(ctx, stop), output(t, out, 0), o)
	if err != context.Canceled || errors.Is(err, fault.ErrInput) || r == nil || r.Tokens < 50 || r.Tokens > first.Tokens {
		t.Fatalf("an interrupt in the skipped tokens: %+v, %v", r, err)
	}
	if r, err := Run(t.Context(), m, pipe(nil, nil), output(t, out, 0), o); err != nil || r.Resumed < 50 {
		t.Errorf("the next run: %+v, %v", r, err)
	}
}

// A rename cannot leave its file system.
func TestUnfinishedOutputLiesBesideTheTargetOfALink(t *testing.T) {
	t.Parallel()
	p := problems[0]
	m, in := p.mechanism(t), file(t, p.call())
	for _, exists := range []bool{true, false} {
		dir := t.TempDir()
		link, target := filepath.Join(dir, "link.npy"), filepath.Join(t.TempDir(), "o.npy")
		if exists {
			if err := os.WriteFile(target, nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, link); err != nil {
			t.Skip(err)
		}
		o := Options{Causal: true, Window: 10, Checkpoint: link + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
		if _, err := Run(t.Context(), m, &brittle{source(t, in), 50}, output(t, link, 4), o); !errors.Is(err, errBrittle) {
			t.Fatal(err)
		}
		if _, err := os.Stat(target + PartialSuffix); err != nil {
			t.Error(err)
		}
		if r, err := Run(t.Context(), m, source(t, in), output(t, link, 4), o); err != nil || r.Resumed == 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 || len(read(t, target)) == 0 {
			t.Errorf("the link has become %v, %v", info, err)
		}
	}
}
