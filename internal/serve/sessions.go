package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/farfield-ml/farfield/internal/sessions"
	"github.com/farfield-ml/farfield/internal/strict"
)

// textInput is the text of a request: a string, or ids.
type textInput struct {
	Text *string   `json:"text"`
	IDs  *tokenIDs `json:"ids"`
}

// tokenIDs holds the ids of tokens. JSON's null is no id.
type tokenIDs []int32

// UnmarshalJSON reads an array of integers. It returns an error for any other value.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	if bytes.Contains(data, []byte("null")) {
		return badFieldf("ids", "has null, needs integers")
	}
	return strict.Unmarshal(data, (*[]int32)(t))
}

// encodeWhole returns the ids of a text with its special tokens. It returns an error where Tokens does.
func (s *Server) encodeWhole(text string) ([]int32, error) { return s.o.Tokens.Encode(text, true) }

// encode returns the ids of in. encode gives the ids of a text. It returns an error if both or,
// with needed, none is given, or if ctx ends.
func (s *Server) encode(ctx context.Context, in textInput, needed bool, encode func(text string) ([]int32, error)) ([]int32, error) {
	switch {
	case in.Text != nil && in.IDs != nil:
		return nil, badFieldf("ids", "are given beside text; one is needed")
	case in.IDs != nil:
		return *in.IDs, nil
	case in.Text == nil && needed:
		return nil, badFieldf("text", "is missing, and so is ids; one is needed")
	case in.Text == nil:
		in.Text = new(string)
	}
	ids, err := s.encodeInTurn(ctx, *in.Text, encode)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, badFieldf("text", "%v", err)
	}
	return ids, nil
}

// checkModel returns an error if a request names another model.
func (s *Server) checkModel(name *string) error {
	if name == nil || *name == s.o.Name || slices.Contains(s.o.Aliases, *name) {
		return nil
	}
	return &apiError{Status: http.StatusNotFound, Type: typeRequest, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("model: there is no %q, the model is %q", *name, s.o.Name)}
}

// refuseModel returns the error of an endpoint that the model does not have.
func (s *Server) refuseModel(why string) error {
	return &apiError{Status: http.StatusBadRequest, Type: typeRequest, Param: "model", Code: "unsupported", Message: fmt.Sprintf("model: %q %s", s.o.Name, why)}
}

// needSessions returns handle, and for a model without sessions a handler that says so.
func (s *Server) needSessions(handle handler) handler {
	if s.o.Sessions != nil {
		return handle
	}
	return func(http.ResponseWriter, *http.Request) error {
		return s.refuseModel("does not predict next tokens, and has no sessions")
	}
}

// sessionAPI answers the endpoints of sessions.
type sessionAPI struct{ *Server }

// routes returns the endpoints of sessions.
func (s sessionAPI) routes() []route {
	return []route{
		{"GET", "/v1/sessions", s.listSessions, false, false},
		{"POST", "/v1/sessions", s.needSessions(s.createSession), false, false},
		{"POST", "/v1/sessions/import", s.needSessions(s.importSession), false, false},
		{"GET", "/v1/sessions/{id}", s.needSessions(s.describeSession), false, false},
		{"DELETE", "/v1/sessions/{id}", s.needSessions(s.deleteSession), false, false},
		{"POST", "/v1/sessions/{id}/append", s.needSessions(s.appendSession), false, false},
		{"POST", "/v1/sessions/{id}/generate", s.needSessions(s.generate), false, false},
		{"POST", "/v1/sessions/{id}/fork", s.needSessions(s.forkSession), false, false},
		{"POST", "/v1/sessions/{id}/rewind", s.needSessions(s.rewindSession), false, false},
		{"GET", "/v1/sessions/{id}/export", s.needSessions(s.exportSession), false, false},
	}
}

// sessionObject is the JSON of a session.
type sessionObject struct {
	ID     string `json:"id"`
	Tokens int64  `json:"tokens"`
	Bytes  int64  `json:"bytes"`
	Model  string `json:"model"`
	Beyond int64  `json:"beyond_trained_context,omitempty"` // of the tokens
	IsBusy bool   `json:"busy,omitempty"`                   // a request may add tokens
	Used   int64  `json:"used,omitempty"`                   // when its last request ended, in seconds since 1970; 0: before the server started
}

// object returns the JSON of a session.
func (s sessionAPI) object(i sessions.Info) sessionObject {
	o := sessionObject{ID: i.ID, Tokens: i.Tokens, Bytes: i.Bytes, Model: s.o.Name, Beyond: s.o.Card.beyondContext(i.Tokens), IsBusy: i.IsBusy}
	if !i.Used.IsZero() {
		o.Used = i.Used.Unix()
	}
	return o
}

// createRequest is the body of a new session.
type createRequest struct {
	Model *string `json:"model"`
	textInput
}

func (s sessionAPI) createSession(w http.ResponseWriter, r *http.Request) error {
	var body createRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	if err := s.checkModel(body.Model); err != nil {
		return err
	}
	ids, err := s.encode(r.Context(), body.textInput, false, s.encodeWhole)
	if err != nil {
		return err
	}
	if _, err := s.fitContext("text", len(ids), 0, true); err != nil {
		return err
	}
	info, err := s.o.Sessions.Create(r.Context(), ids)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, s.object(info))
}

func (s sessionAPI) listSessions(w http.ResponseWriter, r *http.Request) error {
	type object struct {
		sessionObject
		Begin string `json:"begin,omitempty"` // text of the first tokens
	}
	list := []object{}
	if s.o.Sessions != nil {
		begins := r.URL.Query().Has("begin")
		for _, i := range s.o.Sessions.List(r.Context()) {
			x := object{sessionObject: s.object(i)}
			if begins {
				x.Begin = s.beginning(r.Context(), i.ID)
			}
			list = append(list, x)
		}
	}
	return s.writeLargeJSON(w, map[string]any{"object": "list", "data": list})
}

// beginning returns the text of a session's first tokens; "": it is gone or damaged, as its own requests say.
func (s sessionAPI) beginning(ctx context.Context, id string) string {
	ids, err := s.o.Sessions.Beginning(ctx, id)
	if err != nil {
		return ""
	}
	var text strings.Builder
	d := textDecoder{tokens: s.o.Tokens}
	for _, id := range ids { // a character that goes on after them is left out
		part, err := d.add(id)
		if err != nil {
			return ""
		}
		text.WriteString(part)
	}
	return text.String()
}

func (s sessionAPI) describeSession(w http.ResponseWriter, r *http.Request) error {
	info, err := s.o.Sessions.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if !r.URL.Query().Has("text") {
		return writeJSON(w, http.StatusOK, s.object(info))
	}
	ids, unknown, err := s.o.Sessions.Tokens(r.Context(), info.ID)
	if err != nil {
		return err
	}
	text, err := textDecoder{tokens: s.o.Tokens}.decode(ids)
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	return s.writeLargeJSON(w, struct {
		sessionObject
		Text    string  `json:"text"`
		IDs     []int32 `json:"ids"`
		Unknown int64   `json:"unknown_tokens,omitempty"` // before text, of an imported snapshot
	}{s.object(info), text, ids, unknown})
}

func (s sessionAPI) rewindSession(w http.ResponseWriter, r *http.Request) error {
	var body rewindRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	if body.Tokens == nil {
		return badFieldf("tokens", "is missing")
	}
	info, err := s.o.Sessions.Rewind(r.Context(), r.PathValue("id"), *body.Tokens)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.object(info))
}

// rewindRequest is the body of a rewind.
type rewindRequest struct {
	Tokens *int64 `json:"tokens" doc:"Tokens that are left, from the first."`
}

func (s sessionAPI) deleteSession(w http.ResponseWriter, r *http.Request) error {
	if err := s.o.Sessions.Delete(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s sessionAPI) appendSession(w http.ResponseWriter, r *http.Request) error {
	var body textInput
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	info, err := s.o.Sessions.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	ids, err := s.encode(r.Context(), body, true, func(text string) ([]int32, error) { return s.o.Tokens.EncodeContinuation(text, info.Tokens) })
	if err != nil {
		return err
	}
	if _, err := s.fitContext("text", int(info.Tokens)+len(ids), 0, true); err != nil {
		return err
	}
	info, err = s.o.Sessions.Append(r.Context(), r.PathValue("id"), ids)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Tokens int64 `json:"tokens"`
		Beyond int64 `json:"beyond_trained_context,omitempty"`
	}{info.Tokens, s.o.Card.beyondContext(info.Tokens)})
}

// readNothing returns an error if a request has a body with fields.
func (s *Server) readNothing(w http.ResponseWriter, r *http.Request) error {
	return s.readJSON(w, r, &struct{}{})
}

func (s sessionAPI) forkSession(w http.ResponseWriter, r *http.Request) error {
	if err := s.readNothing(w, r); err != nil {
		return err
	}
	info, err := s.o.Sessions.Fork(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, s.object(info))
}

func (s sessionAPI) exportSession(w http.ResponseWriter, r *http.Request) error {
	data, err := s.o.Sessions.Export(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.writeLarge(w, "application/octet-stream", data)
}

func (s sessionAPI) importSession(w http.ResponseWriter, r *http.Request) error {
	data, err := s.readBody(w, r, s.o.MaxImport)
	if err != nil {
		return err
	}
	info, err := s.o.Sessions.Import(r.Context(), data)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, s.object(info))
}

// defaultTokens is the number of tokens that are drawn where a request does not say.
const defaultTokens = 16

// defaultSeed is the seed of a session's draw.
const defaultSeed = 1

// generation is the answer of a session's generate.
type generation struct {
	IDs    []int32 `json:"ids"`
	Text   string  `json:"text"`
	Tokens int64   `json:"tokens"`
	Reason string  `json:"finish_reason"`
	Beyond int64   `json:"beyond_trained_context,omitempty"` // of Tokens
}

// generateRequest is the body of a session's generate.
type generateRequest struct {
	sampling
	MaxTokens *int            `json:"max_tokens" doc:"Tokens of the answer (16)."`
	Seed      *uint64         `json:"seed" doc:"Seed of the draw (1)."`
	Stop      json.RawMessage `json:"stop" doc:"Texts before the first of which the text of the answer ends. The session holds the tokens of the stop."`
	StopAtEnd bool            `json:"stop_at_end" doc:"End at a token that ends texts (false)."`
	Stream    bool            `json:"stream" doc:"Answer with server-sent events (false)."`
}

func (s sessionAPI) generate(w http.ResponseWriter, r *http.Request) error {
	var body generateRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	d := sessions.Draw{StopAtEnd: body.StopAtEnd}
	var err error
	if d.Sampling, err = body.sampling.check(); err != nil {
		return err
	}
	if d.MaxTokens, err = s.checkMaxTokens("max_tokens", body.MaxTokens, defaultTokens); err != nil {
		return err
	}
	stops, err := s.parseStops(body.Stop)
	if err != nil {
		return err
	}
	if len(stops) > 0 {
		d.Stop = s.stopper(stops, func() bool { return false })
	}
	d.Seed = defaultSeed
	if body.Seed != nil {
		d.Seed = *body.Seed
	}
	if s.o.Card.TrainedContext > 0 {
		info, err := s.o.Sessions.Get(r.Context(), r.PathValue("id"))
		if err != nil {
			return err
		}
		if d.MaxTokens, err = s.fitContext("max_tokens", int(info.Tokens), d.MaxTokens, body.MaxTokens != nil); err != nil {
			return err
		}
	}
	begin := stopText{decoder: textDecoder{tokens: s.o.Tokens}, stops: stops}
	if d.StopAtEnd {
		begin.decoder.ends = s.o.EndTokens
	}
	draw := func(ctx context.Context, emit func(int32) error) (sessions.Result, error) {
		return s.o.Sessions.Generate(ctx, r.PathValue("id"), d, emit)
	}
	if !body.Stream {
		result, err := draw(r.Context(), nil)
		if err != nil {
			return err
		}
		last, err := s.describeGeneration(begin, result)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, last)
	}
	// A client that goes away keeps what it was sent.
	var mu sync.Mutex
	sent, isKept := 0, false // tokens; nothing more is sent
	begun := s.o.Clock()
	d.Kept = func() int {
		mu.Lock()
		defer mu.Unlock()
		isKept = true
		return sent
	}
	return s.sendStream(w, func(e *events) error {
		text := begin
		result, err := streamTokens(r.Context(), draw, func(id int32) error {
			part, err := text.add(id)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if isKept { // the session has the tokens before
				return context.Canceled
			}
			if err := e.send(struct {
				ID   int32  `json:"id"`
				Text string `json:"text"`
			}{id, part}); err != nil {
				return err
			}
			if sent++; sent == 1 {
				s.metrics.firstToken.Observe(s.o.Clock().Sub(begun).Seconds())
			}
			return nil
		})
		if err != nil {
			return err
		}
		last, err := s.describeGeneration(begin, result)
		if err != nil {
			return err
		}
		return e.send(last)
	})
}

// describeGeneration returns the answer for a result, whose text t decodes. It returns an error if an id is outside the
// vocabulary.
func (s sessionAPI) describeGeneration(t stopText, r sessions.Result) (*generation, error) {
	var text strings.Builder
	for _, id := range r.IDs {
		part, err := t.add(id)
		if err != nil {
			return nil, err
		}
		text.WriteString(part)
	}
	text.WriteString(t.end())
	if r.IDs == nil {
		r.IDs = []int32{}
	}
	return &generation{r.IDs, text.String(), r.Info.Tokens, r.Reason, s.o.Card.beyondContext(r.Info.Tokens)}, nil
}

// sampling holds the fields of a request that choose tokens.
type sampling struct {
	Temperature *float64 `json:"temperature" doc:"Divisor of the logits; 0: the most likely token (1)."`
	TopK        *int     `json:"top_k" doc:"Draw from the k most likely tokens; 0 or -1: all (0)."`
	TopP        *float64 `json:"top_p" doc:"Draw from the smallest set of likely tokens with this probability, 0 to 1 (1)."`
	MinP        *float64 `json:"min_p" doc:"Leave out tokens with a smaller share of the most likely token's probability, 0 to 1 (0)."`
}

// check returns the settings without a seed. It returns an error for an invalid field.
func (p *sampling) check() (sessions.Sampling, error) {
	v := sessions.Sampling{Temperature: 1}
	if p.Temperature != nil {
		v.Temperature = *p.Temperature
	}
	if p.TopK != nil && *p.TopK != -1 { // as vLLM says that there is no limit
		v.TopK = *p.TopK
	}
	if p.MinP != nil {
		v.MinP = *p.MinP
	}
	if p.TopP != nil {
		v.TopP = *p.TopP
		if v.TopP == 0 { // of Sampling: all tokens
			v.TopP = math.SmallestNonzeroFloat64
		}
	}
	switch {
	case !(v.Temperature >= 0 && v.Temperature <= maxTemperature):
		return v, badFieldf("temperature", "%v is not between 0 and %d", v.Temperature, maxTemperature)
	case v.TopK < 0:
		return v, badFieldf("top_k", "%d is negative", v.TopK)
	case !(v.TopP >= 0 && v.TopP <= 1):
		return v, badFieldf("top_p", "%v is not between 0 and 1", v.TopP)
	case !(v.MinP >= 0 && v.MinP <= 1):
		return v, badFieldf("min_p", "%v is not between 0 and 1", v.MinP)
	}
	return v, nil
}

// maxTemperature is far beyond an even choice of all tokens.
const maxTemperature = 1000

// checkMaxTokens returns the tokens to draw. It returns an error if they are negative or more
// than an answer has.
func (s *Server) checkMaxTokens(param string, n *int, otherwise int) (int, error) {
	if n == nil {
		return min(otherwise, s.o.MaxTokens), nil
	}
	if *n < 0 || *n > s.o.MaxTokens {
		return 0, badFieldf(param, "%d is not between 0 and %d", *n, s.o.MaxTokens)
	}
	return *n, nil
}

// fitContext returns the tokens to draw after n tokens. It returns an error if they do not fit the context that the
// model was trained with, unless Options.BeyondContext. A number that the request does not give is cut instead.
func (s *Server) fitContext(param string, n, want int, isGiven bool) (int, error) {
	most := s.o.Card.TrainedContext
	if most == 0 || s.o.BeyondContext || n+want <= most {
		return want, nil
	}
	if !isGiven && n < most {
		return most - n, nil
	}
	e := badFieldf(param, "%d tokens and %d of an answer are more than the %d that the model was trained with, behind which text gets worse; shorten them, or start the server with --beyond-context", n, want, most)
	e.Code = "context_length_exceeded"
	return 0, e
}
