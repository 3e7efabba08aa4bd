// Package cluster is what the peers share: how they reach the API server, and how they print what they measured.
package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config reads a kubeconfig. The client-side rate limiter is off, as controller-runtime has it by default: a peer must
// not look slow for a limit that its own users do not have.
func Config(kubeconfig string) *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Check(err)
	config.QPS = -1
	return config
}

// Counted makes every request of the configuration count.
func Counted(config *rest.Config) *atomic.Int64 {
	var requests atomic.Int64
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return counter{inner, &requests}
	})
	return &requests
}

type counter struct {
	inner    http.RoundTripper
	requests *atomic.Int64
}

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.inner.RoundTrip(request)
}

// Print writes one line of JSON to standard output.
func Print(value any) {
	Check(json.NewEncoder(os.Stdout).Encode(value))
}

// Check ends the program with what went wrong.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
