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

	penalties
	N        *whole          `json:"n" doc:"Answers to each prompt (1)."`
	Logprobs json.RawMessage `json:"logprobs" doc:"Log-probabilities of tokens: of completions the number of likely tokens at each place, of chat true."`
	Format   *responseFormat `json:"response_format" doc:"The form of the answer."`

	User     json.RawMessage `json:"user"`
	Metadata json.RawMessage `json:"metadata"`
}

// streamOptions are the choices of a stream.
type streamOptions struct {
	IncludeUsage       bool `json:"include_usage"`
	IncludeObfuscation bool `json:"include_obfuscation"`
}

// Limits of stops and of answers to a prompt.
const (
	maxStops      = 16
	maxStopLength = 256
	maxChoices    = 128
)

// check returns what a request draws. It returns an error for an invalid field.
func (q *drawRequest) check(s *Server) (*drawing, error) {
	d := &drawing{top: -1}
	var err error
	if err := s.checkModel(q.Model); err != nil {
		return nil, err
	}
	if d.Sampling, err = q.sampling.check(); err != nil {
		return nil, err
	}
	if d.biases, err = q.penalties.check(s.o.Card.Vocab); err != nil {
		return nil, err
	}
	if d.grammar, err = q.Format.grammar("response_format"); err != nil {
		return nil, err
	}
	if q.N != nil && (*q.N < 1 || *q.N > maxChoices) {
		return nil, badFieldf("n", "%d is not between 1 and %d", *q.N, maxChoices)
	}
	if q.StreamOptions != nil && !q.Stream && (s.o.Strict || *q.StreamOptions != streamOptions{}) {
		return nil, badFieldf("stream_options", "are given without stream")
	}
	if d.stops, err = s.parseStops(q.Stop); err != nil {
		return nil, err
	}
	if q.Seed != nil {
		d.Seed = uint64(*q.Seed)
	} else {
		d.Seed = randomSeed()
	}
	d.StopAtEnd = true
	return d, nil
}

// choices returns the number of answers to a prompt.
func (q *drawRequest) choices() int {
	if q.N == nil {
		return 1
	}
	return int(*q.N)
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
	Beyond     int64         `json:"beyond_trained_context,omitempty"` // tokens of texts beyond the trained context, where text gets worse
}

// usageDetails counts the tokens of a prompt whose state was known.
type usageDetails struct {
	Cached int64 `json:"cached_tokens"`
}

// newUsage returns the tokens of a prompt and its answer.
func newUsage(prompt, completion, cached int64) *usage {
	return &usage{Prompt: prompt, Completion: completion, Total: prompt + completion, Details: &usageDetails{cached}}
}

// beyondContext returns the tokens of a text of n tokens beyond the context that the model was trained with.
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

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	drawRequest
	Prompt json.RawMessage `json:"prompt" doc:"A text, ids, or an array of them."`
	Echo   *bool           `json:"echo" doc:"Put the prompt before the answer, and tell the probabilities of its tokens (false)."`
	BestOf *whole          `json:"best_of" doc:"Answers that are drawn, of which the n with the most likely tokens are returned (n)."`
	Suffix json.RawMessage `json:"suffix" doc:"Not supported: text in front of a suffix."`
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
	Text     string              `json:"text"`
	Index    int                 `json:"index"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Reason   *string             `json:"finish_reason"`
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

// listModels answers /v1/models.
func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) error {
	list := []modelObject{}
	for _, name := range append([]string{s.o.Name}, s.o.Aliases...) {
		list = append(list, s.modelObject(name))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// describeModel answers /v1/models/{id}.
func (s *Server) describeModel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := s.checkModel(&id); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.modelObject(id))
}

// modelObject is the JSON of the model.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Card    Card   `json:"farfield"`
}

// modelObject returns the JSON of the model under a name.
func (s *Server) modelObject(name string) modelObject {
	c := s.o.Card
	c.HasSessions, c.HasChat = s.o.Sessions != nil, s.o.Chat != nil && s.o.Chat.Refused == nil
	c.Embeds, c.HasMaps, c.Reranks = s.o.Embedder != nil, s.o.Mapper != nil, s.o.Reranker != nil
	if c.Embeds {
		c.Prompts = s.o.Embedder.Prompts().Names()
		c.Dimensions, c.EmbedTokens = s.o.Embedder.Width(), s.o.Embedder.MaxTokens()
	}
	if !c.HasSessions {
		c.State = ""
	}
	c.Classes = []string{}
	if s.o.Classifier != nil {
		c.Classes = s.o.Classifier.ClassNames()
	}
	return modelObject{name, "model", s.started.Unix(), "farfield", c}
}

// fieldName returns the name of element i of a field.
func fieldName(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
