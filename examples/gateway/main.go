// Command gateway puts whole documents before a classifier: one address that takes a
// text of up to a megabyte, 30,000 tokens and more, and answers its class or that a
// person should read it.
//
//	farfield serve --model runs/tickets
//	go run ./examples/gateway -addr 127.0.0.1:8282
//	curl --data-binary @report.txt http://127.0.0.1:8282/documents
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/client"
)

const (
	maxDocument = 1 << 20 // bytes
	patience    = 2 * time.Minute
	places      = 8    // documents at a time
	certain     = 0.80 // below this probability a person reads the document
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8282", "address of the gateway")
	server := flag.String("server", "http://127.0.0.1:8181", "address of farfield serve")
	flag.Parse()
	g := newGateway(&client.Client{URL: *server, Key: os.Getenv("FARFIELD_KEY")})
	s := &http.Server{Addr: *addr, Handler: g, ReadTimeout: time.Minute, WriteTimeout: patience + time.Minute}
	log.Fatal(s.ListenAndServe())
}

// A verdict is the answer for a document.
type verdict struct {
	Class       string  `json:"class"`
	Probability float64 `json:"probability"`
	Tokens      int     `json:"tokens"`
	ForPerson   bool    `json:"for_person"` // not certain, or not read to its end
}

// newGateway returns the handler of POST /documents.
func newGateway(c *client.Client) http.Handler {
	free := make(chan struct{}, places)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /documents", func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
		default:
			refuse(w, http.StatusTooManyRequests, time.Second, fmt.Errorf("%d documents are being read", places))
			return
		}
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDocument))
		if err != nil {
			status := http.StatusBadRequest
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				status = http.StatusRequestEntityTooLarge
			}
			refuse(w, status, 0, err)
			return
		}
		if len(text) == 0 || !utf8.Valid(text) {
			refuse(w, http.StatusBadRequest, 0, errors.New("the document is no UTF-8 text"))
			return
		}
		// A client that goes ends the work of the server too.
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		classes, err := c.Classify(ctx, string(text))
		if err != nil {
			status, wait := http.StatusBadGateway, time.Duration(0)
			var e *client.Error
			if errors.As(err, &e) {
				switch e.Status {
				case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable:
					status, wait = e.Status, e.RetryAfter
				}
			}
			refuse(w, status, wait, err)
			return
		}
		k := classes[0]
		v := verdict{k.Name, k.Probabilities[k.Name], k.Tokens, false}
		v.ForPerson = v.Probability < certain || k.Truncated
		answer(w, http.StatusOK, v)
	})
	return mux
}

func refuse(w http.ResponseWriter, status int, wait time.Duration, err error) {
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // a client that has gone gets no answer
}
