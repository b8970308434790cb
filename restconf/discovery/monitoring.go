package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// MonitoringTop is what RFC 8040 section 9.3 has a server say of itself.
const MonitoringTop = "ietf-restconf-monitoring:restconf-state"

// capabilities are the optional features: query parameters (RFC 8040 section 9.1.1, RFC
// 8527 section 3.2), the YANG Patch (RFC 8072), our own query parameter dry-run, and the
// handling of defaults.
var capabilities = []string{
	"urn:coe-bridge:restconf:capability:dry-run:1.0",
	"urn:ietf:params:restconf:capability:defaults:1.0?basic-mode=explicit",
	"urn:ietf:params:restconf:capability:depth:1.0",
	"urn:ietf:params:restconf:capability:fields:1.0",
	"urn:ietf:params:restconf:capability:filter:1.0",
	"urn:ietf:params:restconf:capability:replay:1.0",
	"urn:ietf:params:restconf:capability:with-defaults:1.0",
	"urn:ietf:params:restconf:capability:with-operational-defaults:1.0",
	"urn:ietf:params:restconf:capability:yang-patch:1.0",
}

// monitoring is the Source of restconf-state.
type monitoring map[string]stream.Kind

type listedStream struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Replay      bool           `json:"replay-support"`
	Since       string         `json:"replay-log-creation-time,omitempty"`
	Access      []streamAccess `json:"access"`
}

type streamAccess struct {
	Encoding string `json:"encoding"`
	Location string `json:"location"`
}

// Get implements Source.
func (m monitoring) Get(_ context.Context, asked tree.Asked) (*yang.Data, error) {
	if asked.Content == tree.ContentConfig {
		return nil, nil
	}
	state := map[string]any{"capabilities": map[string]any{"capability": capabilities}}
	if listed := m.streams(asked.Base); len(listed) > 0 {
		state["streams"] = map[string]any{"stream": listed}
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", MonitoringTop, err)
	}
	return yang.DecodeObject(raw, asked.Top)
}

// streams are all streams, by kind and key, for clients that reach the server at base.
func (m monitoring) streams(base string) []listedStream {
	var all []listedStream
	for _, kind := range slices.Sorted(maps.Keys(m)) {
		for _, key := range m[kind].Source.Keys() {
			all = append(all, listed(m[kind], base, streamName(kind, key), key))
		}
	}
	return all
}

func listed(kind stream.Kind, base, name, key string) listedStream {
	one := listedStream{
		Name: name, Description: kind.Description,
		Access: []streamAccess{
			{"json", base + stream.Prefix + url.PathEscape(name)},
			{"xml", base + stream.Prefix + stream.InXML + url.PathEscape(name)},
		},
	}
	if log, ok := kind.Source.(stream.Replayer); ok {
		var since time.Time
		if since, one.Replay = log.Since(key); !since.IsZero() && one.Replay {
			one.Since = since.UTC().Format(time.RFC3339Nano)
		}
	}
	return one
}

// streamName is the name of a stream in paths and in the list of streams.
func streamName(kind, key string) string {
	if key == "" {
		return kind
	}
	return kind + "=" + key
}
