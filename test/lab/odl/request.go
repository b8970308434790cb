package odl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// requestTimeout bounds each request.
const requestTimeout = 20 * time.Second

// Request sends a request to the controller as its administrator, and returns the answer. A body is JSON. An
// empty body means no body.
func (c *Controller) Request(ctx context.Context, method, path, body string) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.SetBasicAuth(User, Password)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, nil, err // the error names the request
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return response.StatusCode, answer, nil
}
