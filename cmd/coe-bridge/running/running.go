// Package running reads the objects of a running Kubernetes cluster once, for commands that
// answer questions about it. It writes nothing.
package running

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// Cluster is a running cluster: its API server, or a file with its objects. The zero value is none.
type Cluster struct {
	kubeconfig, file string
	// EgressIPs: EgressIPs are read too, if the API server has them.
	EgressIPs bool
}

// Register adds the flags to a command.
func (c *Cluster) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the running cluster, whose objects are read")
	cmd.Flags().StringVar(&c.file, "cluster", "", "file with the objects of the running cluster, instead of --kubeconfig; - for standard input")
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.MarkFlagFilename("cluster", "yaml", "yml", "json")
	cmd.MarkFlagsMutuallyExclusive("kubeconfig", "cluster")
}

// IsGiven reports whether a flag names a cluster.
func (c *Cluster) IsGiven() bool { return c.kubeconfig != "" || c.file != "" }

// timeout limits a request to the API server.
const timeout = time.Minute

// Read reads the objects of the cluster.
func (c *Cluster) Read(ctx context.Context, stdin io.Reader) (*manifest.Set, error) {
	var set manifest.Set
	if c.file != "" {
		if err := ReadFile(&set, stdin, c.file); err != nil {
			return nil, err
		}
		return &set, nil
	}
	config, err := kube.Connect(c.kubeconfig, "cluster", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	config.Timeout = timeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	for _, path := range manifest.Lists() {
		if err := list(ctx, client, strings.TrimSuffix(config.Host, "/")+path, &set); err != nil {
			return nil, err
		}
	}
	if !c.EgressIPs {
		return &set, nil
	}
	err = list(ctx, client, strings.TrimSuffix(config.Host, "/")+manifest.EgressList, &set)
	if refused, is := errors.AsType[*statusError](err); is && refused.code == http.StatusNotFound {
		err = nil // the cluster has no such custom resource
	} else if is {
		set.Skipped = append(set.Skipped, manifest.Skipped{Kind: "EgressIP", Name: "all", Where: "the cluster", Message: refused.Error()})
		err = nil
	}
	return &set, err
}

// statusError is an answer of an API server other than a success.
type statusError struct {
	code int
	text string
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

// ReadFile adds the manifests of a file, or of stdin if the name is -. A file can also have access
// lists as RESTCONF clients write them.
func ReadFile(set *manifest.Set, stdin io.Reader, name string) error {
	read := func() ([]byte, error) { return os.ReadFile(name) }
	if name == "-" {
		name, read = "standard input", func() ([]byte, error) { return io.ReadAll(stdin) }
	}
	text, err := read()
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	if plan.IsManifest(text) {
		return set.Read(name, bytes.NewReader(text))
	}
	lists, err := plan.AccessLists(plan.Document{Name: name, Text: text})
	set.AccessLists = append(set.AccessLists, lists...)
	return err
}

// pageSize is the number of objects of a page of a list, as kubectl asks for.
const pageSize = "500"

// list adds the objects of a list, page by page.
func list(ctx context.Context, client *http.Client, address string, set *manifest.Set) error {
	for next := ""; ; {
		text, err := get(ctx, client, address+"?"+url.Values{"limit": {pageSize}, "continue": {next}}.Encode())
		if err != nil {
			return fmt.Errorf("list %s: %w", address, err)
		}
		if err := set.Read(address, bytes.NewReader(text)); err != nil {
			return err
		}
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return fmt.Errorf("list %s: %w", address, err)
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// get returns the body of a page. An error has the message of the API server.
func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(text, &status) // a proxy answers with other texts
		return nil, &statusError{response.StatusCode, response.Status + " " + status.Message}
	}
	return text, nil
}
