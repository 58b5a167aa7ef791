package sessions

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/model"
)

// A session that is rewound goes on as one that never had the later tokens, in memory and in a store, also after a
// restart, and its fork keeps them.
func TestRewoundSessionsGoOn(t *testing.T) {
	t.Parallel()
	for name, x := range mechanisms(t) {
		for _, store := range []string{"", t.TempDir()} {
			o := Options{Model: x, Store: store}
			m := open(t, o)
			all := tokens(700, 1)
			id := must[Info](t)(m.Create(ctx, all)).ID
			fork := must[Info](t)(m.Fork(ctx, id)).ID
			for _, n := range []int64{699, 400, 130, 0} {
				if s := must[Info](t)(m.Rewind(ctx, id, n)); s.Tokens != n {
					t.Errorf("%s: %d tokens are left, want %d", name, s.Tokens, n)
				}
				next := tokens(300, uint64(n))
				must[Info](t)(m.Append(ctx, id, next))
				want := slices.Concat(all[:n], next)
				if store != "" {
					closed(t, m)
					m = open(t, o)
				}
				got, unknown, err := m.Tokens(ctx, id)
				if err != nil || unknown != 0 || !slices.Equal(got, want) {
					t.Fatalf("%s, store %q: rewound to %d, %d tokens, %v", name, store, n, len(got), err)
				}
				requireState(t, m, id, want)
				must[Info](t)(m.Rewind(ctx, id, n))
				must[Info](t)(m.Append(ctx, id, all[n:]))
			}
			requireState(t, m, fork, all)
			if _, err := m.Rewind(ctx, id, 701); err == nil {
				t.Error("701 of 700 tokens are left")
			}
			if err := m.Delete(ctx, id); err != nil {
				t.Error(err)
			}
			requireState(t, m, fork, all)
		}
	}
}

// A session tells its first known tokens, also after more, after a rewind, after an import and after a restart.
func TestBeginnings(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"", t.TempDir()} {
		o := Options{Model: newNearFar(t), Store: store}
		m := open(t, o)
		all := tokens(100, 1)
		id := must[Info](t)(m.Create(ctx, all[:10])).ID
		check := func(what, id string, want []int32) {
			t.Helper()
			if got, err := m.Beginning(ctx, id); err != nil || !slices.Equal(got, want) {
				t.Errorf("store %q, %s: %v, %v, want %v", store, what, got, err, want)
			}
		}
		check("created", id, all[:10])
		must[Info](t)(m.Append(ctx, id, all[10:]))
		check("with more", id, all[:MaxBeginning])
		fork := must[Info](t)(m.Fork(ctx, id)).ID
		must[Info](t)(m.Rewind(ctx, id, 5))
		check("rewound", id, all[:5])
		must[Info](t)(m.Append(ctx, id, all[20:24]))
		check("on another way", id, slices.Concat(all[:5], all[20:24]))
		check("forked", fork, all[:MaxBeginning])
		imported := must[Info](t)(m.Import(ctx, must[[]byte](t)(m.Export(ctx, fork)))).ID
		known, _, err := m.Tokens(ctx, imported)
		if err != nil {
			t.Fatal(err)
		}
		check("imported", imported, known)
		if store != "" {
			closed(t, m)
			m = open(t, o)
			check("opened again", fork, all[:MaxBeginning])
		}
		if _, err := m.Beginning(ctx, "none"); !errors.Is(err, ErrUnknown) {
			t.Errorf("a session that does not exist: %v", err)
		}
	}
}

// The tokens of an imported snapshot are unknown, and so is the state after fewer.
func TestImportedTokensAreUnknown(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"", t.TempDir()} {
		m := open(t, Options{Model: newNearFar(t), Store: store})
		data := must[[]byte](t)(m.Export(ctx, must[Info](t)(m.Create(ctx, tokens(50, 1))).ID))
		id := must[Info](t)(m.Import(ctx, data)).ID
		must[Info](t)(m.Append(ctx, id, tokens(10, 2)))
		ids, unknown, err := m.Tokens(ctx, id)
		if want := slices.Concat(tokens(50, 1)[49:], tokens(10, 2)); err != nil || unknown != 49 || !slices.Equal(ids, want) {
			t.Errorf("%d unknown tokens, then %v, %v", unknown, ids, err)
		}
		var field *FieldError
		if _, err := m.Rewind(ctx, id, 40); !errors.As(err, &field) || field.Field != "tokens" {
			t.Errorf("error is %v", err)
		}
		if _, err := m.Rewind(ctx, id, 55); (err == nil) != (store != "") {
			t.Errorf("store %q: error is %v", store, err)
		}
	}
}

// A caller that goes away while tokens are drawn leaves as many in the session as it kept. The session then goes on as
// one that has drawn these alone.
func TestStoppedDrawKeepsTokens(t *testing.T) {
	t.Parallel()
	for name, x := range mechanisms(t) {
		for _, store := range []string{"", t.TempDir()} {
			for _, kept := range []int{0, 1, 7, 20, 1000} {
				m := open(t, Options{Model: x, Store: store})
				all := tokens(40, 1)
				id := must[Info](t)(m.Create(ctx, all)).ID
				stopped, stop := context.WithCancel(ctx)
				var drawn []int32
				_, err := m.Generate(stopped, id, Draw{Sampling: Sampling{Temperature: 1, Seed: 3}, MaxTokens: 1000, Kept: func() int { return kept }}, func(id int32) error {
					if drawn = append(drawn, id); len(drawn) == 20 {
						stop()
					}
					return nil
				})
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("%s: error is %v", name, err)
				}
				ids, _, err := m.Tokens(ctx, id)
				if err != nil || len(ids) < 40+min(kept, 20) || kept <= 20 && len(ids) != 40+kept || !slices.Equal(ids[40:][:min(kept, 20)], drawn[:min(kept, 20)]) {
					t.Errorf("%s, store %q: %d of 20 tokens are kept, the session has %d of 40, %v", name, store, kept, len(ids), err)
				}
				must[Info](t)(m.Append(ctx, id, []int32{5}))
				requireState(t, m, id, append(ids, 5))
				closed(t, m)
			}
		}
	}
}

// Hooks of a draw see the logits of the model, and what they change is drawn from.
func TestHooksSeeLogits(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Model: newNearFar(t)})
	ids := tokens(30, 1)
	session := must[*model.Session](t)(m.o.Model.NewSession(1))
	watched := 0
	var shaped, drawn []int32
	r, err := m.Complete(ctx, ids, Draw{MaxTokens: 5,
		Prompt: func(i int, logits []float32) {
			if want := must[[]float32](t)(session.Step(ctx, ids[i:i+1], 1)); i != watched || !slices.Equal(logits, want) {
				t.Errorf("logits after token %d, number %d, differ", i, watched)
			}
			watched++
		},
		Shape: func(ids []int32, logits []float32) error {
			best := int32(0)
			for i, x := range logits {
				if x < logits[best] {
					best = int32(i)
				}
			}
			logits[best] = 1e6
			shaped = append(shaped, best)
			return nil
		},
		Drawn: func(id int32) { drawn = append(drawn, id) },
	}, nil)
	if err != nil || watched != 30 || len(r.IDs) != 5 || !slices.Equal(r.IDs, shaped) || !slices.Equal(r.IDs, drawn) {
		t.Errorf("%d logits of the prompt, drawn %v, hooks %v and %v, %v", watched, r.IDs, shaped, drawn, err)
	}
	watched = 0
	if _, err := m.Complete(ctx, ids, Draw{Prompt: func(int, []float32) { watched++ }}, nil); err != nil || watched != 29 {
		t.Errorf("without drawing: logits of %d tokens, %v", watched, err)
	}
	refused := errors.New("refused")
	if _, err := m.Complete(ctx, ids, Draw{MaxTokens: 5, Shape: func([]int32, []float32) error { return refused }}, nil); !errors.Is(err, refused) {
		t.Errorf("error is %v", err)
	}
}
