package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/grammar"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// Options configures a Server. If a field for a part of the model is nil, the endpoints of that
// part answer with an error.
type Options struct {
	Name    string   // name of the model
	Aliases []string // other names that requests may use
	Card    Card

	ModelBytes int64 // bytes of the weights, for a decoder with the copy that is packed for products

	Tokens     Tokens
	EndTokens  []int32 // ids that end a text; answers leave them out
	Sessions   Sessions
	Chat       *Chat
	Embedder   Embedder
	Classifier Classifier
	Reranker   Reranker
	Mapper     Mapper
	Page       Page // page at /; nil: none

	BeyondContext bool // texts may be longer than the context that the model was trained with

	Strict bool // refuse unknown fields even if they are null or empty, and empty stops and options

	Keys  []string // a request needs one of them; nil: no key is needed
	Hosts []string // names allowed in a Host header, besides localhost and addresses

	Origins []string // other origins whose pages may send requests, such as https://example.org

	MaxBody     int64   // most bytes of a body; 0: 8 MiB
	MaxBodies   int64   // most bytes of the bodies of all running requests, and of all large answers that are being sent; 0: 256 MiB, at least MaxImport
	MaxImport   int64   // most bytes of an imported snapshot; 0: 1 GiB
	MaxTokens   int     // most tokens of one answer; 0: 65536
	MaxTexts    int     // most texts in a request; 0: 2048
	MaxSession  int64   // most tokens of a prompt with its answer; 0: no limit
	MaxQueue    int     // most requests that Sessions runs or queues; 0: 256
	MaxRequests int     // most requests that are computed at a time, and most whose bodies are arriving; 0: twice MaxQueue, at least 512
	Rate        float64 // requests a second for each key, or for each address if there are no keys; 0: no limit
	Burst       int     // requests that may come at once under Rate; 0: those of one second

	Log    *slog.Logger  // gets a line for each request that fails with 5xx or is slow; nil: no log
	LogAll bool          // log every request
	Slow   time.Duration // a request is slow if its first byte takes longer; 0: 10 s

	WriteTime time.Duration    // a client that does not read a part of its answer in this time is cut off; 0: 30 s
	Clock     func() time.Time // current time; nil: time.Now
}

// Server answers requests for one model. It is an http.Handler.
type Server struct {
	o       Options
	mux     *http.ServeMux
	started time.Time
	metrics *metrics
	rates   *rates
	keys    [][32]byte
	places  chan struct{} // holds an element for each request that computes without a session
	texts   chan struct{} // holds an element for each long text that is being encoded
	renders chan struct{} // holds an element for each conversation that is being rendered

	arriving  *shares // counts requests whose bodies are arriving
	answering *shares // counts requests whose bodies have arrived

	gatherer gatherer

	makeVocab  sync.Once
	tokenVocab *grammar.Vocab // result of makeVocab

	running  atomic.Int64
	bodies   atomic.Int64 // bytes of the bodies of running requests
	answers  atomic.Int64 // bytes of large answers that are being sent
	stopping atomic.Bool
}

// handler answers requests of an endpoint.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is an endpoint.
type route struct {
	method, path string
	handle       handler
	isOpen       bool // needs no key
	isFree       bool // takes no place among requests and has no rate, so that it is answered when others are not
}

// New returns a server with the given options. It returns an error if one of them is invalid.
func New(o Options) (*Server, error) {
	for name, v := range map[string]int64{"MaxBody": o.MaxBody, "MaxBodies": o.MaxBodies, "MaxImport": o.MaxImport, "MaxTokens": int64(o.MaxTokens),
		"MaxTexts": int64(o.MaxTexts), "MaxSession": o.MaxSession, "MaxQueue": int64(o.MaxQueue), "MaxRequests": int64(o.MaxRequests), "Burst": int64(o.Burst), "WriteTime": int64(o.WriteTime), "Slow": int64(o.Slow)} {
		if v < 0 {
			return nil, fmt.Errorf("serve: %s: %d is negative", name, v)
		}
	}
	if !(o.Rate >= 0) {
		return nil, fmt.Errorf("serve: Rate: %v is negative", o.Rate)
	}
	if o.Sessions != nil && o.Tokens == nil {
		return nil, errors.New("serve: Tokens: is nil beside Sessions")
	}
	o.Card.BeyondContext = o.BeyondContext
	setDefault(&o.MaxBody, 8<<20)
	setDefault(&o.MaxBodies, 256<<20)
	o.MaxBodies = max(o.MaxBodies, o.MaxBody, o.MaxImport)
	setDefault(&o.MaxImport, 1<<30)
	o.MaxBodies = max(o.MaxBodies, o.MaxImport)
	setDefault(&o.MaxTokens, 1<<16)
	setDefault(&o.MaxTexts, 2048)
	setDefault(&o.MaxQueue, 256)
	setDefault(&o.MaxRequests, max(512, 2*o.MaxQueue))
	setDefault(&o.WriteTime, 30*time.Second)
	setDefault(&o.Slow, 10*time.Second)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Card.MaxTokens, o.Card.SessionTokens = o.MaxTokens, o.MaxSession
	s := &Server{o: o, mux: http.NewServeMux(), started: o.Clock(), places: make(chan struct{}, 2), texts: make(chan struct{}, 2), renders: make(chan struct{}, 2)}
	s.gatherer = gatherer{embedder: o.Embedder, places: s.places}
	s.rates = newRates(o.Rate, o.Burst)
	s.arriving, s.answering = newShares(o.MaxRequests), newShares(o.MaxRequests)
	s.keys = hashKeys(o.Keys)
	routes := s.routes()
	s.metrics = newMetrics(s, routes)
	byPath := map[string][]route{}
	for _, r := range routes {
		byPath[r.path] = append(byPath[r.path], r)
	}
	for path, list := range byPath {
		s.mux.Handle(path, s.answerPath(path, list))
	}
	return s, nil
}

// setDefault sets a field of 0 to its default.
func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// routes returns the endpoints. An endpoint that the model does not have says so.
func (s *Server) routes() []route {
	text := completionAPI{s}
	return append([]route{
		{"GET", "/healthz", s.health, true, true},
		{"GET", "/health", s.health, true, true},
		{"GET", "/readyz", s.showReadiness, true, true},
		{"GET", "/metrics", s.printMetrics, false, true},
		{"GET", "/openapi.json", s.showAPI, true, true},
		{"GET", "/v1/models", s.listModels, false, false},
		{"GET", "/v1/models/{id}", s.describeModel, false, false},
		{"POST", "/v1/embeddings", s.embed, false, false},
		{"POST", "/v1/classify", s.classify, false, false},
		{"POST", "/v1/rerank", s.rerank, false, false},
		{"POST", "/v1/tokenize", s.tokenize, false, false},
		{"POST", "/v1/maps", s.drawMaps, false, false},
		{"POST", "/v1/completions", s.needSessions(text.complete), false, false},
		{"POST", "/v1/chat/completions", s.needSessions(text.completeChat), false, false},
		{"GET", "/", s.page, true, true},
	}, sessionAPI{s}.routes()...)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	counted := newCountedWriter(w, s.o.WriteTime, s.o.Clock)
	if r.ContentLength != 0 {
		// Package http reads a body that no endpoint reads. A writer without deadlines, as in tests, has no slow clients.
		_ = counted.control.SetReadDeadline(time.Now().Add(bodyTime))
	}
	s.mux.ServeHTTP(counted, r)
}

// Stop makes /readyz and new requests answer 503. Requests that have begun, /healthz and the page
// are still answered.
func (s *Server) Stop() { s.stopping.Store(true) }

// CountRunning returns the number of requests that are being answered, without /healthz, /readyz,
// /metrics and the page.
func (s *Server) CountRunning() int64 { return s.running.Load() }

// answerPath returns the handler of a path. list has a route for each of its methods.
func (s *Server) answerPath(path string, list []route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := s.o.Clock()
		counted := w.(*countedWriter) // ServeHTTP made it
		defer func() { s.bodies.Add(-counted.body) }()
		err := s.answer(counted, r, list)
		if err != nil {
			e := asAPIError(err, s.stopping.Load())
			status := e.Status
			switch {
			case counted.status == 0:
				e.refuse(counted, r, func() { s.metrics.addRequest(r.Method, path, status, s.o.Clock().Sub(begin)) })
				counted.status = status
				s.report(counted, r, path, begin, err)
				return
			case status == http.StatusInternalServerError && r.Context().Err() != nil: // a part of the answer was not written
				status = statusClosed
			}
			counted.status = status
		}
		s.metrics.addRequest(r.Method, path, counted.status, s.o.Clock().Sub(begin))
		s.report(counted, r, path, begin, err)
	})
}

// answer checks a request and calls its route. It returns the error of both.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, list []route) error {
	if err := s.checkOrigin(r); err != nil {
		return err
	}
	if s.allowOrigin(w, r) {
		return nil
	}
	at := slices.IndexFunc(list, func(x route) bool { return x.method == r.Method || x.method == "GET" && r.Method == "HEAD" })
	if at < 0 && list[0].path == "/" && (r.URL.Path != "/" || s.o.Page == nil) {
		return noPath(r)
	}
	if at < 0 {
		for _, x := range list {
			w.Header().Add("Allow", x.method)
		}
		return &apiError{Status: http.StatusMethodNotAllowed, Type: typeRequest, Message: fmt.Sprintf("method: %s is none of %s", r.Method, r.URL.Path)}
	}
	if list[at].isOpen {
		return list[at].handle(w, r)
	}
	if s.stopping.Load() {
		return refuseStopping()
	}
	client, owner, err := s.checkKey(r)
	if err != nil {
		return err
	}
	if owner != "" {
		r = r.WithContext(sessions.WithOwner(r.Context(), owner))
	}
	if list[at].isFree {
		return list[at].handle(w, r)
	}
	if wait := s.rates.take(client, s.o.Clock()); wait > 0 {
		return &apiError{Status: http.StatusTooManyRequests, Type: typeLimit, Code: "rate_limit_exceeded", Retry: wait,
			Message: fmt.Sprintf("there are more than %g requests a second", s.o.Rate)}
	}
	s.running.Add(1)
	defer s.running.Add(-1)
	place := &w.(*countedWriter).place // ServeHTTP made it
	place.server, place.client = s, client
	defer place.end()
	if err := place.begin(r.Method == "POST" && r.ContentLength != 0); err != nil {
		return err
	}
	return list[at].handle(w, r)
}

// compute runs f when there is a place to compute in. It returns the error of f or ctx.
func compute[R any](ctx context.Context, s *Server, f func() (R, error)) (result R, err error) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
		return f()
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// health says that the process answers.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// showReadiness says whether requests are answered.
func (s *Server) showReadiness(w http.ResponseWriter, _ *http.Request) error {
	if s.stopping.Load() {
		return refuseStopping()
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// noPath returns the error of a path that does not exist.
func noPath(r *http.Request) error {
	return &apiError{Status: http.StatusNotFound, Type: typeRequest, Code: "not_found", Message: fmt.Sprintf("path: there is no %s", r.URL.Path)}
}

// page sends the page, or an error for a path that does not exist.
func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	if s.o.Page == nil || !s.o.Page.HasFile(r.URL.Path) {
		return noPath(r)
	}
	s.o.Page.ServeHTTP(w, r)
	return nil
}
