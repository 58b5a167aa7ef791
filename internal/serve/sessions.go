package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/farfield-ml/farfield/internal/sessions"
)

// textInput is the text of a request: a string, or ids.
type textInput struct {
	Text *string   `json:"text"`
	IDs  *tokenIDs `json:"ids"`
}

// tokenIDs holds the ids of tokens. JSON's null is no id.
type tokenIDs []int32

// UnmarshalJSON reads an array of integers. It returns an error for other values.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	if bytes.Contains(data, []byte("null")) {
		return badFieldf("ids", "has null, needs integers")
	}
	err := json.Unmarshal(data, (*[]int32)(t))
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return badFieldf("ids", "is %s, needs %s", kind.Value, describeType(kind.Type.Kind().String()))
	}
	return err
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
	if name == nil || *name == s.o.Name {
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
}

// object returns the JSON of a session.
func (s sessionAPI) object(i sessions.Info) sessionObject {
	return sessionObject{i.ID, i.Tokens, i.Bytes, s.o.Name, s.o.Card.beyondContext(i.Tokens)}
}

func (s sessionAPI) createSession(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Model *string `json:"model"`
		textInput
	}
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
	info, err := s.o.Sessions.Create(r.Context(), ids)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, s.object(info))
}

func (s sessionAPI) listSessions(w http.ResponseWriter, r *http.Request) error {
	list := []sessionObject{}
	if s.o.Sessions != nil {
		for _, i := range s.o.Sessions.List(r.Context()) {
			list = append(list, s.object(i))
		}
	}
	return writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s sessionAPI) describeSession(w http.ResponseWriter, r *http.Request) error {
	info, err := s.o.Sessions.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.object(info))
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

func (s sessionAPI) generate(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		sampling
		MaxTokens *int    `json:"max_tokens"`
		Seed      *uint64 `json:"seed"`
		StopAtEnd bool    `json:"stop_at_end"`
		Stream    bool    `json:"stream"`
	}
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
	d.Seed = defaultSeed
	if body.Seed != nil {
		d.Seed = *body.Seed
	}
	decoder := textDecoder{tokens: s.o.Tokens}
	if d.StopAtEnd {
		decoder.ends = s.o.EndTokens
	}
	draw := func(ctx context.Context, emit func(int32) error) (sessions.Result, error) {
		return s.o.Sessions.Generate(ctx, r.PathValue("id"), d, emit)
	}
	if !body.Stream {
		result, err := draw(r.Context(), nil)
		if err != nil {
			return err
		}
		last, err := s.describeGeneration(decoder, result)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, last)
	}
	return s.sendStream(w, func(e *events) error {
		text := decoder
		result, err := streamTokens(r.Context(), draw, func(id int32) error {
			part, err := text.add(id)
			if err != nil {
				return err
			}
			return e.send(struct {
				ID   int32  `json:"id"`
				Text string `json:"text"`
			}{id, part})
		})
		if err != nil {
			return err
		}
		last, err := s.describeGeneration(decoder, result)
		if err != nil {
			return err
		}
		return e.send(last)
	})
}

// describeGeneration returns the answer for a result. It returns an error if an id is outside the vocabulary.
func (s sessionAPI) describeGeneration(d textDecoder, r sessions.Result) (*generation, error) {
	text, err := d.decode(r.IDs)
	if err != nil {
		return nil, err
	}
	if r.IDs == nil {
		r.IDs = []int32{}
	}
	return &generation{r.IDs, text, r.Info.Tokens, r.Reason, s.o.Card.beyondContext(r.Info.Tokens)}, nil
}

// sampling holds the fields of a request that choose tokens.
type sampling struct {
	Temperature *float64 `json:"temperature"`
	TopK        *int     `json:"top_k"`
	TopP        *float64 `json:"top_p"`
}

// check returns the settings without a seed. It returns an error for an invalid field.
func (p *sampling) check() (sessions.Sampling, error) {
	v := sessions.Sampling{Temperature: 1}
	if p.Temperature != nil {
		v.Temperature = *p.Temperature
	}
	if p.TopK != nil {
		v.TopK = *p.TopK
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
