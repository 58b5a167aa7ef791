package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
	if out := works(t, "health", "--addr", addr); out != "ready\n" {
		t.Errorf("it prints %q", out)
	}
	status = http.StatusServiceUnavailable
	if code, _, errs := command(t, "health", "--addr", addr); code == 0 || !strings.Contains(errs, "status 503") {
		t.Errorf("status %d, %s", code, errs)
	}
	server.Close()
	if code, _, _ := command(t, "health", "--addr", addr); code == 0 {
		t.Error("a closed server is healthy")
	}
	refuses(t, "--addr", "health", "--addr", "nothing")
}
