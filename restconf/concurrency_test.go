package restconf

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writesOfAll are ways to make everything one generation: many pods, and a service in
// another top container.
var writesOfAll = map[string]func(b *bed, generation int) answer{
	"a YANG Patch of two containers": func(b *bed, generation int) answer {
		return b.do("PATCH", "/rests/data", fmt.Sprintf(`{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[
			{"edit-id":"1","operation":"replace","target":"/pod:coe","value":{"pod:coe":{"pods":%s}}},
			{"edit-id":"2","operation":"merge","target":"/service:service-information","value":{"service:service-information":{"services":[%s]}}}]}}`,
			generationOfPods(generation), generationOfService(generation)), header("Content-Type", "application/yang-patch+json"))
	},
	"a PUT of the list": func(b *bed, generation int) answer {
		return b.do("PUT", coeRFC, `{"pod:coe":{"pods":`+generationOfPods(generation)+`}}`)
	},
	"a plain patch of the list": func(b *bed, generation int) answer {
		return b.do("PATCH", coeRFC, `{"pod:coe":{"pods":`+generationOfPods(generation)+`}}`)
	},
}

const podsOfAGeneration = 40

func generationOfPods(generation int) string {
	all := make([]string, podsOfAGeneration)
	for i := range all {
		all[i] = fmt.Sprintf(`{"uid":"00000000-0000-4000-8000-%012d","name":"g%d"}`, i, generation)
	}
	return "[" + strings.Join(all, ",") + "]"
}

func generationOfService(generation int) string {
	return fmt.Sprintf(`{"uid":"%s","name":"g%d"}`, uid1, generation)
}

// namesIn counts the names of all entries in an answer.
func namesIn(t *testing.T, body string) map[string]int {
	var tree any
	if !assert.NoError(t, json.Unmarshal([]byte(body), &tree)) {
		return nil
	}
	names := map[string]int{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if name, ok := v["name"].(string); ok && strings.HasPrefix(name, "g") {
				names[name]++
			}
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(tree)
	return names
}

// A reader sees every concurrent transaction of many entries whole, or
// not at all: the list, the datastore, in either dialect and encoding of names.
func TestReadersSeeWholeTransactions(t *testing.T) {
	for name, write := range writesOfAll {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			require.Less(t, writesOfAll["a YANG Patch of two containers"](b, 0).status, 300)
			services := strings.Contains(name, "two")
			var ended atomic.Bool
			var all sync.WaitGroup
			var read atomic.Int64
			for i, path := range []string{coe, coeRFC, coeRFC + "?depth=4", "/rests/data?content=config", "/restconf/config", "/rests/ds/ietf-datastores:running"} {
				all.Go(func() {
					for first := true; first || !ended.Load(); first = false {
						got := b.do(http.MethodGet, path, "")
						if !assert.Equal(t, 200, got.status, path) {
							return
						}
						want := podsOfAGeneration
						if services && i > 2 {
							want++
						}
						names := namesIn(t, got.body)
						if !services {
							delete(names, "g0") // the service
						}
						for generation, n := range names {
							assert.Equal(t, want, n, "%s: of %s", path, generation)
						}
						assert.LessOrEqual(t, len(names), 1, path)
						read.Add(1)
					}
				})
			}
			for generation := 1; generation <= 25; generation++ {
				require.Less(t, write(b, generation).status, 300)
			}
			ended.Store(true)
			all.Wait()
			require.Greater(t, read.Load(), int64(5))
		})
	}
}
