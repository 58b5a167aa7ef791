package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/farfield-ml/farfield/internal/sessions"
)

// completionAPI answers the endpoints that continue prompts and conversations.
type completionAPI struct{ *Server }

// drawRequest holds the fields that completions and chat have in common. Fields that only
// describe the caller are read and not used.
type drawRequest struct {
	Model *string `json:"model"`
	sampling
	Seed          *int64          `json:"seed"`
	Stop          json.RawMessage `json:"stop"`
	Stream        bool            `json:"stream"`
	StreamOptions *streamOptions  `json:"stream_options"`
	MaxTokens     *int            `json:"max_tokens"`

	N                json.RawMessage `json:"n"`
	LogitBias        json.RawMessage `json:"logit_bias"`
	Logprobs         json.RawMessage `json:"logprobs"`
	FrequencyPenalty json.RawMessage `json:"frequency_penalty"`
	PresencePenalty  json.RawMessage `json:"presence_penalty"`

	User     json.RawMessage `json:"user"`
	Metadata json.RawMessage `json:"metadata"`
}

// streamOptions are the choices of a stream.
type streamOptions struct {
	IncludeUsage       bool `json:"include_usage"`
	IncludeObfuscation bool `json:"include_obfuscation"`
}

// Limits of stops.
const (
	maxStops      = 16
	maxStopLength = 256
)

// check returns the draw and the stops of a request. It returns an error for an invalid field,
// and for one that asks for more than there is.
func (q *drawRequest) check(s *Server) (d sessions.Draw, stops []string, err error) {
	if err := s.checkModel(q.Model); err != nil {
		return d, nil, err
	}
	if d.Sampling, err = q.sampling.check(); err != nil {
		return d, nil, err
	}
	for _, f := range []struct {
		name    string
		value   json.RawMessage
		neutral []string
	}{
		{"n", q.N, []string{"1"}},
		{"logit_bias", q.LogitBias, []string{"{}"}},
		{"logprobs", q.Logprobs, []string{"false"}},
		{"frequency_penalty", q.FrequencyPenalty, []string{"0"}},
		{"presence_penalty", q.PresencePenalty, []string{"0"}},
	} {
		if err := refuseField(f.name, f.value, f.neutral...); err != nil {
			return d, nil, err
		}
	}
	if q.StreamOptions != nil && !q.Stream && (s.o.Strict || *q.StreamOptions != streamOptions{}) {
		return d, nil, badFieldf("stream_options", "are given without stream")
	}
	if stop := compact(q.Stop); stop != "" && stop != "null" && (stop != "[]" || s.o.Strict) {
		if stops, err = parseTexts("stop", q.Stop); err != nil {
			return d, nil, err
		}
		if len(stops) > maxStops {
			return d, nil, badFieldf("stop", "has %d texts, at most %d", len(stops), maxStops)
		}
		for i, stop := range stops {
			if stop == "" || len(stop) > maxStopLength {
				return d, nil, badFieldf("stop", "text %d has %d bytes, needs 1 to %d", i, len(stop), maxStopLength)
			}
		}
	}
	if q.Seed != nil {
		d.Seed = uint64(*q.Seed)
	} else {
		d.Seed = randomSeed()
	}
	d.StopAtEnd = true
	return d, stops, nil
}

// randomSeed returns the seed of a draw whose request has none.
func randomSeed() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// compact returns a JSON value without blanks between its tokens; "": there is none.
func compact(value json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, value) // the decoder has checked it
	return b.String()
}

// refuseField returns an error unless a field is absent, null or neutral. neutral has no blanks
// between its tokens; a number is neutral however it is written.
func refuseField(name string, value json.RawMessage, neutral ...string) error {
	text := compact(value)
	if text == "" || text == "null" || slices.Contains(neutral, text) {
		return nil
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil && slices.ContainsFunc(neutral, func(n string) bool {
		y, err := strconv.ParseFloat(n, 64)
		return err == nil && x == y
	}) {
		return nil
	}
	e := badFieldf(name, "is %.40s, which this server does not support", value)
	e.Code = "unsupported"
	return e
}

// usage counts the tokens of an answer.
type usage struct {
	Prompt     int64         `json:"prompt_tokens"`
	Completion int64         `json:"completion_tokens"`
	Total      int64         `json:"total_tokens"`
	Details    *usageDetails `json:"prompt_tokens_details,omitempty"`
	Beyond     int64         `json:"beyond_trained_context,omitempty"` // tokens of texts behind the trained context, where text gets worse
}

// usageDetails counts the tokens of a prompt whose state was known.
type usageDetails struct {
	Cached int64 `json:"cached_tokens"`
}

// newUsage returns the tokens of a prompt and its answer.
func newUsage(prompt, completion, cached int64) *usage {
	return &usage{Prompt: prompt, Completion: completion, Total: prompt + completion, Details: &usageDetails{cached}}
}

// beyondContext returns the tokens of a text of n tokens behind the context that the model was trained with.
func (c *Card) beyondContext(n int64) int64 {
	if c.TrainedContext == 0 {
		return 0
	}
	return max(0, n-int64(c.TrainedContext))
}

// newID returns a random id of 128 bits with a prefix.
func newID(prefix string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// completion is the text that continues one prompt.
type completion struct {
	text   string
	reason string
	result sessions.Result
}

// continueText draws tokens after ids and calls emit, unless nil, with each part of their text.
// The text ends before the first stop. A stop that is the text of a special token ends the draw at this token,
// which has no text. An end token has none either.
func (s completionAPI) continueText(ctx context.Context, ids []int32, d sessions.Draw, stops []string, emit func(text string) error) (*completion, error) {
	if len(stops) > 0 {
		watch := stopText{decoder: textDecoder{tokens: s.o.Tokens, ends: s.o.EndTokens}, stops: stops}
		special := s.findSpecialStops(stops)
		read := 0
		d.Stop = func(ids []int32) bool {
			for ; read < len(ids) && !watch.isEnded; read++ {
				// An id outside the vocabulary is the error of the text below.
				_, _ = watch.add(ids[read])
			}
			return watch.isEnded || slices.Contains(special, ids[len(ids)-1])
		}
	}
	text := stopText{decoder: textDecoder{tokens: s.o.Tokens, ends: s.o.EndTokens}, stops: stops}
	var whole []byte
	each := func(part string) error {
		if part == "" {
			return nil
		}
		if emit != nil {
			return emit(part)
		}
		whole = append(whole, part...)
		return nil
	}
	result, err := streamTokens(ctx, func(ctx context.Context, emit func(int32) error) (sessions.Result, error) {
		return s.o.Sessions.Complete(ctx, ids, d, emit)
	}, func(id int32) error {
		part, err := text.add(id)
		if err != nil {
			return err
		}
		return each(part)
	})
	if err != nil {
		return nil, err
	}
	if err := each(text.end()); err != nil {
		return nil, err
	}
	return &completion{string(whole), result.Reason, result}, nil
}

// findSpecialStops returns the ids of the stops that are texts of special tokens.
func (s completionAPI) findSpecialStops(stops []string) []int32 {
	var list []int32
	for _, stop := range stops {
		// A stop without ids is found in the text alone.
		ids, err := s.o.Tokens.Encode(stop, false)
		if err != nil || len(ids) != 1 {
			continue
		}
		if b, err := s.o.Tokens.Bytes(nil, ids[0]); err == nil && len(b) == 0 {
			list = append(list, ids[0])
		}
	}
	return list
}

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	drawRequest
	Prompt json.RawMessage `json:"prompt"`
	Echo   json.RawMessage `json:"echo"`
	BestOf json.RawMessage `json:"best_of"`
	Suffix json.RawMessage `json:"suffix"`
}

// completionAnswer is the answer of /v1/completions, or an event of its stream.
type completionAnswer struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

type completionChoice struct {
	Text     string  `json:"text"`
	Index    int     `json:"index"`
	Logprobs *string `json:"logprobs"` // always null
	Reason   *string `json:"finish_reason"`
}

// parsePrompts returns the ids of a prompt: of a string or ids, or of several. It returns an
// error if data is none of these, if there are more than MaxTexts, or if ctx ends.
func (s completionAPI) parsePrompts(ctx context.Context, data json.RawMessage) ([][]int32, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, badFieldf("prompt", "is missing")
	}
	list, ok := stringsOf(data)
	if err := s.checkPrompts(len(list)); err != nil {
		return nil, err
	}
	var prompts [][]int32
	for i, text := range list {
		ids, err := s.encodeText(ctx, text, true)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, badFieldf("prompt", "text %d: %v", i, err)
		}
		prompts = append(prompts, ids)
	}
	var one tokenIDs
	var several []tokenIDs
	switch {
	case ok && len(list) > 0:
	case json.Unmarshal(data, &one) == nil && len(one) > 0:
		prompts = [][]int32{one}
	case json.Unmarshal(data, &several) == nil && len(several) > 0:
		if err := s.checkPrompts(len(several)); err != nil {
			return nil, err
		}
		for _, ids := range several {
			prompts = append(prompts, ids)
		}
	default:
		return nil, badFieldf("prompt", "is neither a string, nor ids, nor a filled array of them")
	}
	for i, ids := range prompts {
		if len(ids) == 0 {
			return nil, badFieldf("prompt", "text %d is empty, and the model has no token that begins a text", i)
		}
		for j, id := range ids {
			if id < 0 || int(id) >= s.o.Card.Vocab {
				return nil, badFieldf("prompt", "text %d: element %d is %d, the vocabulary has %d tokens", i, j, id, s.o.Card.Vocab)
			}
		}
	}
	return prompts, nil
}

// checkPrompts returns an error if n prompts are more than MaxTexts.
func (s completionAPI) checkPrompts(n int) error {
	if n > s.o.MaxTexts {
		return badFieldf("prompt", "has %d texts, at most %d", n, s.o.MaxTexts)
	}
	return nil
}

// complete answers /v1/completions.
func (s completionAPI) complete(w http.ResponseWriter, r *http.Request) error {
	var q completionRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	d, stops, err := q.check(s.Server)
	if err != nil {
		return err
	}
	if d.MaxTokens, err = s.checkMaxTokens("max_tokens", q.MaxTokens, defaultTokens); err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		value   json.RawMessage
		neutral string
	}{{"echo", q.Echo, "false"}, {"best_of", q.BestOf, "1"}, {"suffix", q.Suffix, `""`}} {
		if err := refuseField(f.name, f.value, f.neutral); err != nil {
			return err
		}
	}
	prompts, err := s.parsePrompts(r.Context(), q.Prompt)
	if err != nil {
		return err
	}
	answer := completionAnswer{ID: newID("cmpl-"), Object: "text_completion", Created: s.o.Clock().Unix(), Model: s.o.Name}
	if q.Stream {
		return s.streamCompletion(w, r, &q, answer, prompts, d, stops)
	}
	answer.Choices = make([]completionChoice, len(prompts))
	list, err := s.completeAll(r.Context(), &q, prompts, d, stops)
	if err != nil {
		return err
	}
	var read, drawn, reused, beyond int64
	for i, c := range list {
		beyond += s.o.Card.beyondContext(int64(len(prompts[i]) + len(c.result.IDs)))
		answer.Choices[i] = completionChoice{Text: c.text, Index: i, Reason: &c.reason}
		read, drawn, reused = read+int64(len(prompts[i])), drawn+int64(len(c.result.IDs)), reused+c.result.Reused
	}
	answer.Usage = newUsage(read, drawn, reused)
	answer.Usage.Beyond = beyond
	return writeJSON(w, http.StatusOK, answer)
}

// maxPrompts bounds the prompts of a request that are continued at a time.
const maxPrompts = 8

// completeAll continues prompts. Without a seed in q each prompt has a random seed. It returns the first error.
func (s completionAPI) completeAll(ctx context.Context, q *completionRequest, prompts [][]int32, d sessions.Draw, stops []string) ([]*completion, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := make([]*completion, len(prompts))
	var wait sync.WaitGroup
	var once sync.Once
	var first error
	most := s.o.MaxQueue
	if len(s.keys) > 0 {
		most = (most + 1) / 2 // a key's share of the queue
	}
	places := make(chan struct{}, min(maxPrompts, most))
	for i, ids := range prompts {
		places <- struct{}{}
		d := d
		if q.Seed == nil {
			d.Seed = randomSeed()
		}
		wait.Go(func() {
			defer func() { <-places }()
			c, err := s.continueText(ctx, ids, d, stops, nil)
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

// streamCompletion sends the parts of one prompt's continuation.
func (s completionAPI) streamCompletion(w http.ResponseWriter, r *http.Request, q *completionRequest, answer completionAnswer, prompts [][]int32, d sessions.Draw, stops []string) error {
	if len(prompts) > 1 {
		return badFieldf("stream", "is of one prompt, there are %d", len(prompts))
	}
	return s.sendStream(w, func(e *events) error {
		c, err := s.continueText(r.Context(), prompts[0], d, stops, func(text string) error {
			answer.Choices = []completionChoice{{Text: text}}
			return e.send(answer)
		})
		if err != nil {
			return err
		}
		answer.Choices = []completionChoice{{Reason: &c.reason}}
		if err := e.send(answer); err != nil || q.StreamOptions == nil || !q.StreamOptions.IncludeUsage {
			return err
		}
		answer.Choices = []completionChoice{}
		answer.Usage = newUsage(int64(len(prompts[0])), int64(len(c.result.IDs)), c.result.Reused)
		answer.Usage.Beyond = s.o.Card.beyondContext(answer.Usage.Total)
		return e.send(answer)
	})
}

// listModels answers /v1/models.
func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelObject{s.modelObject()}})
}

// describeModel answers /v1/models/{id}.
func (s *Server) describeModel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := s.checkModel(&id); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.modelObject())
}

// modelObject is the JSON of the model.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Card    Card   `json:"farfield"`
}

// modelObject returns the JSON of the model.
func (s *Server) modelObject() modelObject {
	c := s.o.Card
	c.HasSessions, c.HasChat = s.o.Sessions != nil, s.o.Chat != nil && s.o.Chat.Refused == nil
	c.Embeds, c.HasMaps = s.o.Embedder != nil, s.o.Mapper != nil
	if !c.HasSessions {
		c.State = ""
	}
	c.Classes = []string{}
	if s.o.Classifier != nil {
		c.Classes = s.o.Classifier.ClassNames()
	}
	return modelObject{s.o.Name, "model", s.started.Unix(), "farfield", c}
}

// fieldName returns the name of element i of a field.
func fieldName(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
