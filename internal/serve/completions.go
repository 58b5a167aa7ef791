package serve

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// check returns what a request draws. It returns an error for an invalid field, and for one that asks for more than
// there is.
func (q *completionRequest) check(s *Server) (*drawing, error) {
	d, err := q.drawRequest.check(s)
	if err != nil {
		return nil, err
	}
	if err := refuseField("suffix", q.Suffix, `""`); err != nil {
		return nil, err
	}
	d.echo = q.Echo != nil && *q.Echo
	switch text := compact(q.Logprobs); text {
	case "", "null", "false":
	default:
		if json.Unmarshal(q.Logprobs, &d.top) != nil || d.top < 0 || d.top > maxTopTokens {
			return nil, badFieldf("logprobs", "is %.40s, needs an integer between 0 and %d", text, maxTopTokens)
		}
	}
	if best := q.best(); best != q.choices() {
		switch {
		case best < q.choices() || best > maxChoices:
			return nil, badFieldf("best_of", "%d is not between n, which is %d, and %d", best, q.choices(), maxChoices)
		case q.Stream:
			return nil, badFieldf("best_of", "%d of %d answers cannot be streamed before all are drawn", q.choices(), best)
		}
		d.top = max(d.top, 0)
	}
	return d, nil
}

// best returns the number of answers that are drawn to each prompt.
func (q *completionRequest) best() int {
	if q.BestOf != nil {
		return int(*q.BestOf)
	}
	return q.choices()
}

// complete answers /v1/completions.
func (s completionAPI) complete(w http.ResponseWriter, r *http.Request) error {
	var q completionRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	d, err := q.check(s.Server)
	if err != nil {
		return err
	}
	prompts, err := s.parsePrompts(r.Context(), q.Prompt)
	if err != nil {
		return err
	}
	if n := len(prompts) * q.best(); n > s.o.MaxTexts && q.best() > 1 {
		return badFieldf("n", "%d answers to %d prompts are %d texts, at most %d", q.best(), len(prompts), n, s.o.MaxTexts)
	}
	longest := 0
	for _, ids := range prompts {
		longest = max(longest, len(ids))
	}
	if d.MaxTokens, err = s.checkMaxTokens("max_tokens", q.MaxTokens, defaultTokens); err != nil {
		return err
	}
	if d.MaxTokens, err = s.fitContext("prompt", longest, d.MaxTokens, q.MaxTokens != nil); err != nil {
		return err
	}
	answer := completionAnswer{ID: newID("cmpl-"), Object: "text_completion", Created: s.o.Clock().Unix(), Model: s.o.Name}
	if q.Stream {
		return s.streamCompletion(w, r, &q, answer, prompts, d)
	}
	list, err := s.drawAll(r.Context(), prompts, q.best(), q.Seed != nil, d, nil)
	if err != nil {
		return err
	}
	answer.Usage = s.countAll(prompts, q.best(), list)
	for i, ids := range prompts {
		answers := list[i*q.best():][:q.best()]
		if q.best() > q.choices() {
			slices.SortStableFunc(answers, func(a, b *completion) int {
				switch {
				case a.mean > b.mean:
					return -1
				case a.mean < b.mean:
					return 1
				}
				return 0
			})
			answers = answers[:q.choices()]
		}
		for _, c := range answers {
			choice := completionChoice{Text: c.text, Index: len(answer.Choices), Reason: &c.reason}
			begin := ""
			if d.echo {
				if begin, err = s.echo(r.Context(), ids); err != nil {
					return err
				}
				choice.Text = begin + choice.Text
			}
			if len(q.Logprobs) > 0 && d.top >= 0 {
				if choice.Logprobs, _, err = s.describeProbs(c.probs, d.top, 0); err != nil {
					return err
				}
			}
			answer.Choices = append(answer.Choices, choice)
		}
	}
	if d.top < 0 {
		return writeJSON(w, http.StatusOK, answer)
	}
	return s.writeLargeJSON(w, answer)
}

// echo returns the text of a prompt, without the space that the tokenizer puts before a text. Special tokens have none.
func (s completionAPI) echo(ctx context.Context, ids []int32) (string, error) {
	text, ok, err := s.decodeText(ctx, ids)
	if ok || err != nil {
		return text, err
	}
	return textDecoder{tokens: s.o.Tokens}.decode(ids)
}

// countAll returns the usage of the answers to prompts, best to each.
func (s completionAPI) countAll(prompts [][]int32, best int, list []*completion) *usage {
	var read, drawn, reused, beyond int64
	for i, c := range list {
		ids := prompts[i/best]
		beyond += s.o.Card.beyondContext(int64(len(ids) + len(c.result.IDs)))
		drawn, reused = drawn+int64(len(c.result.IDs)), reused+c.result.Reused
		if i%best == 0 {
			read += int64(len(ids))
		}
	}
	u := newUsage(read, drawn, min(reused, read))
	u.Beyond = beyond
	return u
}

// maxPrompts bounds the prompts of a request that are continued at a time.
const maxPrompts = 8

// drawAll continues each prompt n times. Answer j has the seed of d plus j; without a seed in the request each has a
// random one. emit, unless nil, gets the parts of answer number i, from one goroutine at a time. drawAll returns the
// first error.
func (s completionAPI) drawAll(ctx context.Context, prompts [][]int32, n int, hasSeed bool, d *drawing, emit func(i int, text string, probs []tokenProb) error) ([]*completion, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := make([]*completion, len(prompts)*n)
	var wait sync.WaitGroup
	var once sync.Once
	var sending sync.Mutex
	var first error
	most := s.o.MaxQueue
	if len(s.keys) > 0 {
		most = (most + 1) / 2 // a key's share of the queue
	}
	places := make(chan struct{}, min(maxPrompts, most))
	for i := range list {
		places <- struct{}{}
		d := *d
		if d.Seed += uint64(i % n); !hasSeed {
			d.Seed = randomSeed()
		}
		wait.Go(func() {
			defer func() { <-places }()
			var each emitter
			if emit != nil {
				each = func(text string, probs []tokenProb) error {
					sending.Lock()
					defer sending.Unlock()
					return emit(i, text, probs)
				}
			}
			c, err := s.continueText(ctx, prompts[i/n], &d, each)
			if err != nil {
				once.Do(func() { first = err })
				cancel()
			}
			list[i] = c
		})
	}
	wait.Wait()
	return list, first
}

// streamCompletion sends the parts of answers.
func (s completionAPI) streamCompletion(w http.ResponseWriter, r *http.Request, q *completionRequest, answer completionAnswer, prompts [][]int32, d *drawing) error {
	n := q.choices()
	offsets := make([]int, len(prompts)*n)
	return s.sendStream(w, func(e *events) error {
		send := func(i int, text string, probs []tokenProb, reason *string) error {
			choice := completionChoice{Text: text, Index: i, Reason: reason}
			if d.top >= 0 {
				var err error
				if choice.Logprobs, offsets[i], err = s.describeProbs(probs, d.top, offsets[i]); err != nil {
					return err
				}
			}
			answer.Choices = []completionChoice{choice}
			return e.send(answer)
		}
		if d.echo {
			for i := range offsets {
				text, err := s.echo(r.Context(), prompts[i/n])
				if err != nil {
					return err
				}
				answer.Choices = []completionChoice{{Text: text, Index: i}}
				if err := e.send(answer); err != nil {
					return err
				}
			}
		}
		list, err := s.drawAll(r.Context(), prompts, n, q.Seed != nil, d, func(i int, text string, probs []tokenProb) error {
			return send(i, text, probs, nil)
		})
		if err != nil {
			return err
		}
		for i, c := range list {
			if err := send(i, "", c.probs, &c.reason); err != nil {
				return err
			}
		}
		if q.StreamOptions == nil || !q.StreamOptions.IncludeUsage {
			return nil
		}
		answer.Choices, answer.Usage = []completionChoice{}, s.countAll(prompts, n, list)
		return e.send(answer)
	})
}

// completionLogprobs are the log-probabilities of the tokens of a completion.
type completionLogprobs struct {
	Tokens  []string   `json:"tokens"`
	Logs    []*float64 `json:"token_logprobs"` // null: of the first token of a text
	Top     []topLogs  `json:"top_logprobs"`
	Offsets []int      `json:"text_offset"` // characters
}

// topLogs are the log-probabilities of tokens at a place, by their texts, the most likely first.
type topLogs []namedLog

type namedLog struct {
	text string
	log  float64
}

// MarshalJSON returns an object from token to log-probability, or null if there is none.
func (t topLogs) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("null"), nil
	}
	b := []byte{'{'}
	for i, x := range t {
		if slices.ContainsFunc(t[:i], func(y namedLog) bool { return y.text == x.text }) {
			continue
		}
		if i > 0 {
			b = append(b, ',')
		}
		name, err := atomicfile.MarshalJSON(x.text)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(x.log)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// tokenText returns the text of a token, and its bytes. Bytes that are no text by themselves are named, as OpenAI's API
// does.
func (s *Server) tokenText(id int32) (string, []byte, error) {
	b, err := s.o.Tokens.Bytes(nil, id)
	if err != nil {
		return "", nil, err
	}
	if utf8.Valid(b) {
		return string(b), b, nil
	}
	const digits = "0123456789abcdef"
	var name strings.Builder
	name.WriteString("bytes:")
	for _, c := range b {
		name.WriteString(`\x` + digits[c>>4:c>>4+1] + digits[c&15:c&15+1])
	}
	return name.String(), b, nil
}

// finite returns a log-probability that JSON has: a token that is impossible has a finite one.
func finite(x float64) float64 { return max(x, -math.MaxFloat32) }

// describeProbs returns the JSON of probabilities of tokens whose text begins at a character, with the top most likely
// beside each, and the character after them.
func (s *Server) describeProbs(probs []tokenProb, top, offset int) (*completionLogprobs, int, error) {
	l := &completionLogprobs{Tokens: []string{}, Logs: []*float64{}, Top: []topLogs{}, Offsets: []int{}}
	for _, p := range probs {
		text, b, err := s.tokenText(p.id)
		if err != nil {
			return nil, 0, err
		}
		l.Tokens, l.Offsets = append(l.Tokens, text), append(l.Offsets, offset)
		offset += utf8.RuneCount(b)
		if p.isFirst {
			l.Logs, l.Top = append(l.Logs, nil), append(l.Top, nil)
			continue
		}
		log := finite(p.log)
		l.Logs = append(l.Logs, &log)
		var list topLogs
		if top > 0 {
			list = topLogs{}
			for _, x := range p.top {
				name, _, err := s.tokenText(x.id)
				if err != nil {
					return nil, 0, err
				}
				list = append(list, namedLog{name, finite(x.log)})
			}
			if !slices.ContainsFunc(list, func(x namedLog) bool { return x.text == text }) {
				list = append(list, namedLog{text, log})
			}
		}
		l.Top = append(l.Top, list)
	}
	return l, offset, nil
}
