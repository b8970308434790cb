package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// User and password of every bridge that tests and measurements run.
const (
	User     = "admin"
	Password = "admin"
)

// maxIdle is the number of idle connections that a client keeps: one for each concurrent request.
const maxIdle = 16

// Client is a client of a bridge, as its user. It is safe for concurrent use. The caller must close it.
type Client struct {
	base    string
	timeout time.Duration
	http    *http.Client
}

// NewClient returns a client of the bridge at a URL without a slash at the end. The timeout bounds each request.
func NewClient(url string, timeout time.Duration) *Client { return NewTLSClient(url, timeout, nil) }

// NewTLSClient is NewClient with a configuration of TLS.
func NewTLSClient(url string, timeout time.Duration, config *tls.Config) *Client {
	return &Client{url, timeout, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxIdle, TLSClientConfig: config}}}
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Open sends a request. The caller reads the answer until ctx ends, and closes it.
func (c *Client) Open(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the bridge: %w", err)
	}
	r.SetBasicAuth(User, Password)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(r)
}

// Do sends a request with a path such as "/restconf/config/…", and returns the status and the body of the
// answer. A body that is not a text is marshalled. nil means no body.
func (c *Client) Do(ctx context.Context, method, path string, body any) (status int, answer string, err error) {
	text, err := textOf(body)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	response, err := c.Open(ctx, method, path, text)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	return response.StatusCode, string(raw), nil
}

func textOf(body any) (string, error) {
	switch body := body.(type) {
	case nil:
		return "", nil
	case string:
		return body, nil
	}
	raw, err := json.Marshal(body)
	return string(raw), err
}

// Read reads a draft-02 tree, such as "operational/coe-status:leases", into out. If the data does not
// exist, out stays unchanged and found is false.
func (c *Client) Read(ctx context.Context, path string, out any) (found bool, err error) {
	status, answer, err := c.Do(ctx, http.MethodGet, "/restconf/"+path, nil)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusNotFound:
		return false, nil
	case status != http.StatusOK:
		return false, fmt.Errorf("GET %s: %d %s", path, status, answer)
	}
	var tops map[string]json.RawMessage
	if err := json.Unmarshal([]byte(answer), &tops); err != nil {
		return false, fmt.Errorf("GET %s: %w", path, err)
	}
	for _, content := range tops {
		if err := json.Unmarshal(content, out); err != nil {
			return false, fmt.Errorf("GET %s: %w", path, err)
		}
	}
	return true, nil
}

// Written returns the number of objects that the backend has, and whether it is in sync.
func (c *Client) Written(ctx context.Context) (objects int, inSync bool, err error) {
	var status struct {
		InSync bool `json:"in-sync"`
		Scopes []struct {
			Written int `json:"objects-written"`
		} `json:"scope"`
	}
	if _, err := c.Read(ctx, "operational/coe-status:status", &status); err != nil {
		return 0, false, err
	}
	for _, s := range status.Scopes {
		objects += s.Written
	}
	return objects, status.InSync, nil
}
