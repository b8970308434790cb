package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The bridge's credentials in its development mode.
const user, password = "admin", "admin"

// requestTimeout bounds a request to the bridge.
const requestTimeout = 10 * time.Second

// rest is a plain client of the bridge's RESTCONF (draft-02).
type rest struct{ base string }

// object is a JSON object.
type object map[string]any

// config writes to the config tree; any status but success is an error with what
// the bridge said.
func (r rest) config(ctx context.Context, method, path string, body any) error {
	status, answer, err := r.do(ctx, method, "config/"+path, body)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%d %s: %s", status, http.StatusText(status), strings.TrimSpace(string(answer)))
	}
	if err != nil {
		return fmt.Errorf("%s /restconf/config/%s: %w", method, path, err)
	}
	return nil
}

// confirmed reads from the operational tree, which has what the backend has confirmed. If the data
// does not exist, out stays unchanged.
func (r rest) confirmed(ctx context.Context, path string, out any) error {
	status, answer, err := r.do(ctx, http.MethodGet, "operational/"+path, nil)
	switch {
	case err != nil:
	case status == http.StatusNotFound:
		return nil
	case status == http.StatusOK:
		err = json.Unmarshal(answer, out)
	default:
		err = fmt.Errorf("%d %s: %s", status, http.StatusText(status), strings.TrimSpace(string(answer)))
	}
	if err != nil {
		return fmt.Errorf("GET /restconf/operational/%s: %w", path, err)
	}
	return nil
}

func (r rest) do(ctx context.Context, method, path string, body any) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+"/restconf/"+path, payload)
	if err != nil {
		return 0, nil, err
	}
	request.SetBasicAuth(user, password)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// ready fails if the bridge is not ready.
func (r rest) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /readyz: %s: %s", response.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

// convergeTimeout bounds how long the bridge and OVN may take to follow a change.
const convergeTimeout = 15 * time.Second

// await calls f until it returns nil, or the last error when that takes too long.
func await(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, convergeTimeout)
	defer cancel()
	return ovnhost.Poll(ctx, f)
}
