//go:build docs

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/client"
)

// classifier answers as farfield serve does: the length decides, in place of a model.
func classifier(w http.ResponseWriter, r *http.Request) {
	var in struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Input) != 1 {
		w.WriteHeader(400)
		return
	}
	p, tokens := 0.95, len(in.Input[0])
	switch {
	case strings.HasPrefix(in.Input[0], "busy"):
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
		return
	case strings.HasPrefix(in.Input[0], "broken"):
		w.WriteHeader(500)
		return
	case tokens < 10:
		p = 0.6
	}
	fmt.Fprintf(w, `{"data":[{"index":0,"class":"refund","probabilities":{"refund":%g,"other":%g},"tokens":%d,"truncated":%t}]}`, p, 1-p, tokens, tokens > 100000)
}

func TestGatewayAnswersOrSaysWhyNot(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(classifier))
	defer server.Close()
	g := newGateway(&client.Client{URL: server.URL})
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"a long document": {strings.Repeat("word ", 6000), 200, `{"class":"refund","probability":0.95,"tokens":30000,"for_person":false}`},
		"not certain":     {"short", 200, `"for_person":true`},
		"not read wholly": {strings.Repeat("word ", 30000), 200, `"for_person":true`},
		"empty":           {"", 400, "no UTF-8 text"},
		"bytes":           {"\xff\xfe", 400, "no UTF-8 text"},
		"too large":       {strings.Repeat("x", maxDocument+1), 413, "too large"},
		"a busy server":   {"busy", 429, "status 429"},
		"a broken server": {"broken", 502, "status 500"},
	} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/documents", strings.NewReader(c.body)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, c.status, c.want)
		}
		if c.status == 429 && w.Header().Get("Retry-After") != "7" {
			t.Errorf("%s: Retry-After %q", name, w.Header().Get("Retry-After"))
		}
	}
}
