package health

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

func TestHealthIsTheServers(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}))
	addr := strings.TrimPrefix(server.URL, "http://")
	var out bytes.Buffer
	e := &env.Env{Context: t.Context(), Stdout: &out}
	c := &Command{Addr: addr, Timeout: 5 * time.Second}
	if err := c.Run(e); err != nil || out.String() != "ready\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	status = http.StatusServiceUnavailable
	if err := c.Run(e); err == nil || !strings.Contains(err.Error(), "status 503") {
		t.Errorf("error is %v", err)
	}
	server.Close()
	if err := c.Run(e); err == nil {
		t.Error("a closed server is healthy")
	}
	c.Addr = "nothing"
	if err := c.Run(e); err == nil || !strings.Contains(err.Error(), "--addr") {
		t.Errorf("error is %v", err)
	}
}
