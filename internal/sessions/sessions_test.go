package sessions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/model"
)

var (
	ctx     = context.Background()
	sampled = Draw{Sampling: Sampling{Temperature: 1, Seed: 5}, MaxTokens: 20}
)

// mechanisms has a state of fixed size, and one that grows.
func mechanisms(t testing.TB) map[string]*model.Model {
	return map[string]*model.Model{"near-far": newNearFar(t), "softmax": newModel(t, "softmax", nil)}
}

// continuation returns the tokens that package generate draws after ids.
func continuation(t testing.TB, m *model.Model, ids []int32, d Draw) []int32 {
	t.Helper()
	g, err := generate.New(m, d.Sampling)
	if err != nil {
		t.Fatal(err)
	}
	g.Append(ids...)
	var list []int32
	err = g.Generate(ctx, d.MaxTokens, func(id int32) error {
		list = append(list, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSessionDrawsWhatAGeneratorDraws(t *testing.T) {
	t.Parallel()
	for name, model := range mechanisms(t) {
		t.Run(name, func(t *testing.T) {
			m := open(t, Options{Model: model, Store: t.TempDir()})
			ids := tokens(700, 1)
			s := must[Info](t)(m.Create(ctx, ids[:300]))
			if s = must[Info](t)(m.Append(ctx, s.ID, ids[300:])); s.Tokens != 700 {
				t.Fatalf("session has %d tokens, needs 700", s.Tokens)
			}
			var emitted []int32
			r := must[Result](t)(m.Generate(ctx, s.ID, sampled, func(id int32) error {
				emitted = append(emitted, id)
				return nil
			}))
			want := continuation(t, model, ids, sampled)
			if !slices.Equal(r.IDs, want) || !slices.Equal(emitted, want) {
				t.Errorf("drawn %v, emitted %v, want %v", r.IDs, emitted, want)
			}
			if r.Reason != Length || r.Info.Tokens != 720 {
				t.Errorf("reason %s and %d tokens, want %s and 720", r.Reason, r.Info.Tokens, Length)
			}
			requireState(t, m, s.ID, slices.Concat(ids, want))
			c := must[Result](t)(m.Complete(ctx, ids, sampled, nil))
			if !slices.Equal(c.IDs, want) {
				t.Errorf("completion is %v, want %v", c.IDs, want)
			}
			if c.Reused < 600 {
				t.Errorf("%d of 700 known tokens are reused", c.Reused)
			}
		})
	}
}

func TestSameSessionSeedAndFieldsDrawTheSame(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	s := must[Info](t)(m.Create(ctx, tokens(40, 1)))
	f := must[Info](t)(m.Fork(ctx, s.ID))
	if f.ID == s.ID || f.Tokens != s.Tokens {
		t.Fatalf("fork is %+v of %+v", f, s)
	}
	a := must[Result](t)(m.Generate(ctx, s.ID, sampled, nil))
	b := must[Result](t)(m.Generate(ctx, f.ID, sampled, nil))
	if !slices.Equal(a.IDs, b.IDs) {
		t.Errorf("fork draws %v, session %v", b.IDs, a.IDs)
	}
}

func TestDrawingEndsAtEndTokensAndStops(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), EndTokens: []int32{3}})
	ids := tokens(10, 2)
	want := must[Result](t)(m.Complete(ctx, ids, Draw{Sampling: sampled.Sampling, MaxTokens: 400}, nil))
	at := slices.Index(want.IDs, 3) + 1
	if at == 0 {
		t.Fatal("no end token is drawn: choose another seed")
	}
	d := Draw{Sampling: sampled.Sampling, MaxTokens: 400, StopAtEnd: true}
	r := must[Result](t)(m.Complete(ctx, ids, d, nil))
	if !slices.Equal(r.IDs, want.IDs[:at]) || r.Reason != Stopped {
		t.Errorf("end token: %v, %s, want %v", r.IDs, r.Reason, want.IDs[:at])
	}
	d = Draw{Sampling: sampled.Sampling, MaxTokens: 400, Stop: func(ids []int32) bool { return len(ids) == 7 }}
	r = must[Result](t)(m.Complete(ctx, ids, d, nil))
	if !slices.Equal(r.IDs, want.IDs[:7]) || r.Reason != Stopped {
		t.Errorf("stop: %v, %s, want %v", r.IDs, r.Reason, want.IDs[:7])
	}
}

func TestFailedRequestsLeaveSessionsAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"", t.TempDir()} {
		for name, model := range mechanisms(t) {
			m := open(t, Options{Model: model, Store: store, Identity: name})
			ids := tokens(500, 3)
			s := must[Info](t)(m.Create(ctx, ids))
			stop := errors.New("the client went away")
			_, err := m.Generate(ctx, s.ID, Draw{MaxTokens: 50}, func(int32) error { return stop })
			if !errors.Is(err, stop) {
				t.Errorf("%s: error is %v, want %v", name, err, stop)
			}
			requireState(t, m, s.ID, ids)
			cancelled, cancel := context.WithCancel(ctx)
			_, err = m.Generate(cancelled, s.ID, Draw{MaxTokens: 50}, func(int32) error { cancel(); return nil })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error is %v, want %v", name, err, context.Canceled)
			}
			if _, err = m.Append(cancelled, s.ID, tokens(300, 4)); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error is %v, want %v", name, err, context.Canceled)
			}
			requireState(t, m, s.ID, ids)
			closed(t, m)
			if store != "" {
				store = t.TempDir()
			}
		}
	}
}

func TestSessionsHaveOneWriter(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	s := must[Info](t)(m.Create(ctx, tokens(9, 1)))
	var errs []error
	must[Result](t)(m.Generate(ctx, s.ID, Draw{MaxTokens: 1}, func(int32) error {
		_, e1 := m.Append(ctx, s.ID, tokens(1, 1))
		_, e2 := m.Generate(ctx, s.ID, Draw{MaxTokens: 1}, nil)
		_, e3 := m.Fork(ctx, s.ID)
		_, e4 := m.Export(ctx, s.ID)
		errs = append(errs, e1, e2, e3, e4, m.Delete(ctx, s.ID))
		if _, err := m.Get(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
		return nil
	}))
	for i, err := range errs {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("request %d: error is %v, want %v", i, err, ErrBusy)
		}
	}
}

func TestLimitsAreErrors(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t), MaxSessions: 2, MaxTokens: 50, MaxQueue: 1})
	s := must[Info](t)(m.Create(ctx, tokens(40, 1)))
	must[Info](t)(m.Create(ctx, nil))
	field := func(err error) bool { var f *FieldError; return errors.As(err, &f) }
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	complete := func(ids []int32, d Draw) error { _, err := m.Complete(ctx, ids, d, nil); return err }
	var inner error
	must[Result](t)(m.Complete(ctx, tokens(4, 1), Draw{MaxTokens: 1}, func(int32) error {
		_, inner = m.Create(ctx, nil)
		return nil
	}))
	_, create := m.Create(ctx, nil)
	_, fork := m.Fork(ctx, s.ID)
	_, long := m.Append(ctx, s.ID, tokens(11, 1))
	_, longer := m.Generate(ctx, s.ID, Draw{MaxTokens: 11}, nil)
	_, outside := m.Append(ctx, s.ID, []int32{0, vocab})
	_, below := m.Append(ctx, s.ID, []int32{-1})
	_, unknown := m.Append(ctx, "x", nil)
	_, imported := m.Import(ctx, []byte("x"))
	for name, c := range map[string]struct {
		err error
		is  func(error) bool
	}{
		"queue":           {inner, is(ErrFull)},
		"sessions":        {create, is(ErrFull)},
		"forks":           {fork, is(ErrFull)},
		"append":          {long, is(ErrTooLong)},
		"generate":        {longer, is(ErrTooLong)},
		"prompt":          {complete(tokens(45, 1), Draw{MaxTokens: 6}), is(ErrTooLong)},
		"vocabulary":      {outside, field},
		"negative id":     {below, field},
		"empty prompt":    {complete(nil, Draw{MaxTokens: 1}), field},
		"negative tokens": {complete(tokens(1, 1), Draw{MaxTokens: -1}), field},
		"temperature":     {complete(tokens(1, 1), Draw{Sampling: Sampling{Temperature: -1}}), field},
		"unknown":         {unknown, is(ErrUnknown)},
		"import":          {imported, is(ErrFull)},
		"deleted":         {m.Delete(ctx, "x"), is(ErrUnknown)},
	} {
		if !c.is(c.err) {
			t.Errorf("%s: unexpected error %v", name, c.err)
		}
	}
	requireState(t, m, s.ID, tokens(40, 1))
	closed(t, m)
	if _, err := m.Create(ctx, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("error is %v, want %v", err, ErrClosed)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	small := newNearFar(t)
	for want, o := range map[string]Options{
		"model: it is nil": {},
		"memory: -1":       {Model: small, Memory: -1},
		"disk: -1":         {Model: small, Disk: -1},
		"max tokens: -1":   {Model: small, MaxTokens: -1},
		"max sessions: -1": {Model: small, MaxSessions: -1},
		"max queue: -1":    {Model: small, MaxQueue: -1},
		"max batch: -1":    {Model: small, MaxBatch: -1},
	} {
		if _, err := Open(ctx, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}
