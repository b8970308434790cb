package bridge

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// However many ask at a time and in a row, a page is computed once a second.
func TestSharedPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alone sync.Mutex
		n := 0
		h := shared(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n++
			require.True(t, alone.TryLock(), "it is computed twice at a time")
			defer alone.Unlock()
			runtime.Gosched()
			w.Header().Set("Content-Type", "text/x")
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprint(w, n)
		}))
		ask := func() string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			return fmt.Sprint(w.Code, w.Header(), w.Body)
		}
		require.Equal(t, "418 map[Content-Type:[text/x]] 1", ask())
		for i := range 9 {
			<-time.After(openEvery)
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { require.Equal(t, fmt.Sprintf("418 map[Content-Type:[text/x]] %d", i+2), ask()) })
			}
			all.Wait()
			<-time.After(openEvery - time.Millisecond)
			ask()
		}
		require.Equal(t, 10, n)
	})
}
