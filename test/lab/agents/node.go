package agents

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// lineLimit bounds an event.
const lineLimit = 1 << 20

// client sends requests to one bridge, as a user.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string, streams int) *client {
	return &client{url, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams, DisableKeepAlives: true}}}
}

// open opens the stream of a node after an event; empty means from a snapshot.
func (c *client) open(ctx context.Context, node netip.Addr, after string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/rests/streams/node-interfaces="+node.String(), nil)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(serve.User, serve.Password)
	r.Header.Set("Accept", "text/event-stream")
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("GET %s: %s", r.URL.Path, answer.Status), answer.Body.Close())
	}
	return answer.Body, nil
}

// node is the state of one node from its stream.
type node struct {
	address netip.Addr
	observe func(Record)
	last    string // the id of the last event of the last group

	mu      sync.Mutex
	records map[string]Record // by "pod-uid/interface-uid"
	place   *Place            // nil for none
	told    bool              // the stream has sent a whole snapshot
	err     error             // of the last attempt to follow
}

// run follows the stream until ctx is done.
func (n *node) run(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		err := n.follow(ctx, c)
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// follow applies events until the stream ends.
func (n *node) follow(ctx context.Context, c *client) error {
	body, err := c.open(ctx, n.address, n.last)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, lineLimit)
	var group []notification
	var id string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "data":
			event, err := parse(value)
			if err != nil {
				return err
			}
			group = append(group, event)
		case "": // the end of an event
			if id != "" {
				n.take(group)
				n.last, group, id = id, nil, ""
			}
		}
	}
	return cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}

// notification is a notification of module coe-agent.
type notification struct {
	Changed *struct {
		Operation string `json:"operation"`
		Record
	} `json:"coe-agent:interface-changed"`
	Placed *struct {
		Operation string `json:"operation"`
		Place
	} `json:"coe-agent:node-changed"`
	Begin    *struct{} `json:"coe-agent:snapshot-begin"`
	Complete *struct{} `json:"coe-agent:snapshot-complete"`
}

func parse(data string) (notification, error) {
	var event struct {
		Body notification `json:"ietf-restconf:notification"`
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return notification{}, fmt.Errorf("read an event: %w", err)
	}
	return event.Body, nil
}

// take applies a group of events.
func (n *node) take(group []notification) {
	n.mu.Lock()
	for _, event := range group {
		switch c := event.Changed; {
		case event.Begin != nil:
			clear(n.records)
			n.place = nil
		case event.Complete != nil:
			n.told = true
		case event.Placed != nil:
			n.place = nil
			if event.Placed.Operation == "put" {
				n.place = &event.Placed.Place
			}
		case c != nil && c.Operation == "put":
			n.records[c.key()] = c.Record
		case c != nil:
			delete(n.records, c.key())
		}
	}
	n.mu.Unlock()
	for _, event := range group {
		if c := event.Changed; c != nil && c.Operation == "put" {
			n.observe(c.Record)
		}
	}
}

func (r Record) key() string { return r.PodUID + "/" + r.InterfaceUID }

func (n *node) hasTold() (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told, n.err
}

func (n *node) appendRecords(all []Record) []Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.AppendSeq(all, maps.Values(n.records))
}
