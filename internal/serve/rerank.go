package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/farfield-ml/farfield/internal/inference"
)

// rerankRequest is the body of /v1/rerank.
type rerankRequest struct {
	Model           *string           `json:"model"`
	Query           *string           `json:"query"`
	Documents       []json.RawMessage `json:"documents" doc:"Texts, or objects whose field text is one."`
	TopN            *int              `json:"top_n" doc:"Results, the most relevant first (all)."`
	ReturnDocuments bool              `json:"return_documents" doc:"Put the texts of documents into results (false)."`
}

// texts returns the documents. It returns an error if one is no text.
func (q *rerankRequest) texts() ([]string, error) {
	texts := make([]string, len(q.Documents))
	for i, data := range q.Documents {
		list, ok := stringsOf(data)
		if ok && data[0] == '"' {
			texts[i] = list[0]
			continue
		}
		var object struct {
			Text *string `json:"text"`
		}
		if json.Unmarshal(data, &object) != nil || object.Text == nil {
			return nil, badFieldf(fieldName("documents", i), "is %.40s, needs a string, or an object with text", data)
		}
		texts[i] = *object.Text
	}
	return texts, nil
}

// rerank answers /v1/rerank.
func (s *Server) rerank(w http.ResponseWriter, r *http.Request) error {
	if s.o.Reranker == nil {
		return s.refuseModel("does not score pairs of texts; a cross-encoder of one number does")
	}
	var q rerankRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	if err := s.checkModel(q.Model); err != nil {
		return err
	}
	switch n := len(q.Documents); {
	case q.Query == nil || *q.Query == "":
		return badFieldf("query", "is missing")
	case n == 0 || n > s.o.MaxTexts:
		return badFieldf("documents", "has %d texts, needs 1 to %d", n, s.o.MaxTexts)
	case q.TopN != nil && *q.TopN < 1:
		return badFieldf("top_n", "%d is below 1", *q.TopN)
	}
	texts, err := q.texts()
	if err != nil {
		return err
	}
	scores, err := compute(r.Context(), s, func() ([]Score, error) { return s.o.Reranker.Rerank(r.Context(), *q.Query, texts) })
	var text *inference.TextError
	if errors.As(err, &text) {
		return badFieldf(fieldName("documents", text.Text), "%v", text.Err)
	}
	if err != nil {
		return err
	}
	type document struct {
		Text string `json:"text"`
	}
	type result struct {
		Index       int       `json:"index"`
		Relevance   float64   `json:"relevance_score"`
		IsTruncated bool      `json:"truncated"`
		Document    *document `json:"document,omitempty"`
	}
	var results []result
	tokens := 0
	for i, x := range scores {
		results = append(results, result{Index: i, Relevance: x.Value, IsTruncated: x.IsTruncated})
		if tokens += x.Tokens; q.ReturnDocuments {
			results[i].Document = &document{texts[i]}
		}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(b.Relevance, a.Relevance) })
	if q.TopN != nil {
		results = results[:min(*q.TopN, len(results))]
	}
	return s.writeLargeJSON(w, map[string]any{"object": "list", "model": s.o.Name, "results": results, "usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
}

// tokenizeRequest is the body of /v1/tokenize.
type tokenizeRequest struct {
	Model *string `json:"model"`
	textInput
	Special *bool `json:"add_special_tokens" doc:"Add the tokens that begin and end a text (true)."`
}

// tokenize answers /v1/tokenize: the tokens of a text, or the text of tokens.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	if s.o.Tokens == nil {
		return s.refuseModel("has no vocabulary of texts")
	}
	var q tokenizeRequest
	if err := s.readJSON(w, r, &q); err != nil {
		return err
	}
	if err := s.checkModel(q.Model); err != nil {
		return err
	}
	special := q.Special == nil || *q.Special
	ids, err := s.encode(r.Context(), q.textInput, true, func(text string) ([]int32, error) { return s.o.Tokens.Encode(text, special) })
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	tokens := make([]string, len(ids))
	for i, id := range ids {
		if id < 0 || int(id) >= s.o.Card.Vocab {
			return badFieldf("ids", "element %d is %d, the vocabulary has %d tokens", i, id, s.o.Card.Vocab)
		}
		if tokens[i], _, err = s.tokenText(id); err != nil {
			return err
		}
	}
	text, err := textDecoder{tokens: s.o.Tokens}.decode(ids)
	if err != nil {
		return err
	}
	return s.writeLargeJSON(w, map[string]any{"model": s.o.Name, "ids": ids, "tokens": tokens, "count": len(ids), "text": text})
}
