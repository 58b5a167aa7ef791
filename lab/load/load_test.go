package load

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/chat"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/serve"
	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// byteTokens are the bytes of a text.
type byteTokens struct{}

func (byteTokens) Encode(text string, _ bool) ([]int32, error) {
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func (b byteTokens) EncodeContinuation(text string, _ int64) ([]int32, error) {
	return b.Encode(text, false)
}

func (byteTokens) Bytes(dst []byte, id int32) ([]byte, error) { return append(dst, byte(id)), nil }

func (byteTokens) SpecialToken(int32) string { return "" }

// lengths embeds a text as its length.
type lengths struct{}

func (lengths) Width() int { return 1 }

func (lengths) MaxTokens() int { return 1 << 10 }

func (lengths) Prompts() *published.Prompts { return &published.Prompts{} }

func (lengths) Embed(_ context.Context, _ *string, texts []string) ([]inference.Embedding, error) {
	list := make([]inference.Embedding, len(texts))
	for i, text := range texts {
		list[i] = inference.Embedding{Values: []float32{float32(len(text))}, Tokens: len(text)}
	}
	return list, nil
}

// newHandler returns the server of a small decoder.
func newHandler(t *testing.T) http.Handler {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 1, Width: 8, Context: 64, Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	manager, err := sessions.Open(t.Context(), sessions.Options{Model: m, Identity: "a model", Store: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	template, err := chat.Parse("{% for m in messages %}{{ m.content }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	h, err := serve.New(serve.Options{Name: "tiny", Card: serve.Card{Vocab: 256}, Tokens: byteTokens{}, Sessions: manager, Chat: &serve.Chat{Template: template}, Embedder: lengths{}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// driveHandler drives h for a moment. A disk may stall for longer: until the report has
// want, h is driven for twice the time, five times at most.
func driveHandler(t *testing.T, h http.Handler, want string) (string, error) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	for moment := 400 * time.Millisecond; ; moment *= 2 {
		var b bytes.Buffer
		err := Run(t.Context(), []string{"-addr", s.URL, "-for", moment.String(), "-clients", "4", "-check", "1"}, &b)
		if err != nil || strings.Contains(b.String(), want) || moment > 6*time.Second {
			return b.String(), err
		}
	}
}

func TestServerOfRightAnswersPasses(t *testing.T) {
	text, err := driveHandler(t, newHandler(t), "first token: median")
	if err != nil || !strings.Contains(text, "first token: median") || !strings.Contains(text, " 0 failures") {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestWrongAnswersAreFailures(t *testing.T) {
	for want, change := range map[string]func(w http.ResponseWriter, n int64){
		"status 500": func(w http.ResponseWriter, n int64) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "{}")
		},
		"alone": func(w http.ResponseWriter, n int64) {
			fmt.Fprintf(w, `{"data":[%d]}`, n)
		},
	} {
		h := newHandler(t)
		var count atomic.Int64
		text, err := driveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/embeddings" {
				w.Header().Set("Content-Type", "application/json")
				change(w, count.Add(1))
				return
			}
			h.ServeHTTP(w, r)
		}), "embeddings")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v:\n%s", want, err, text)
		}
	}
}

func TestGrowthIsAnError(t *testing.T) {
	var samples []sample
	for i := range int64(100) {
		samples = append(samples, sample{resident: 100e6 + i*1e6, goroutines: 20})
	}
	var b bytes.Buffer
	if err := printTrends(&b, samples, false); err != nil {
		t.Errorf("not judged: %v", err)
	}
	if err := printTrends(&b, samples, true); err == nil || !strings.Contains(err.Error(), "resident memory, MB: grew from 105 to 195") || strings.Contains(err.Error(), "goroutines") {
		t.Errorf("error is %v", err)
	}
}

func TestQuantilesAreWithinABucket(t *testing.T) {
	var h times
	for i := range 1000 {
		h.add(time.Duration(i) * time.Millisecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if d := h.quantile(share); d < want*98/100 || d > want*102/100 {
			t.Errorf("quantile %v is %v, want %v", share, d, want)
		}
	}
}

// No session is locked, also where their states are more than the memory.
func TestHeldSessionsAreAnswered(t *testing.T) {
	s := httptest.NewServer(newHandler(t))
	defer s.Close()
	var out strings.Builder
	o := &options{clients: 4, sessions: 40, duration: 200 * time.Millisecond}
	if err := hold(t.Context(), o, &target{url: s.URL}, &out); err != nil || !strings.Contains(out.String(), "40 sessions") || !strings.Contains(out.String(), "repeated: 0 times 429, 0 times 503") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
