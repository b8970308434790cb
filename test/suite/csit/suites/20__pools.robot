*** Settings ***
Documentation       Pools, and the addresses that pods get from them.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin With Nothing
Test Setup          Think Of A Pod
Test Teardown       Remove All Entries

Test Tags           pools


*** Variables ***
${POOLS}            ${DRAFT02.data}/${POOL.container}
${NETWORK}          ${POOLS}/network/${NAMESPACE}


*** Test Cases ***
A Pool Comes And Goes In Draft-02
    [Tags]    odl
    Entry Comes And Goes    ${DRAFT02}    ${POOL}

A Pool Comes And Goes In RFC 8040
    Entry Comes And Goes    ${RFC8040}    ${POOL}

A Pool Can Be Sent As XML
    XML Is Taken    ${DRAFT02}    ${POOL}
    Request    DELETE    ${POOLS}    expected=200
    XML Is Taken    ${RFC8040}    ${POOL}

The Specification's Pool Is Taken With Its Slash
    [Documentation]    As it is printed: every name with its prefix, the path with a slash at the end.
    [Tags]    odl
    ${body}=    Body    specification-pool.json
    Request    POST    ${POOLS}/    ${body}    expected=204
    ${answer}=    Request    GET    ${POOLS}/network/pod-namespace    expected=200
    VAR    ${pool}    ${answer.json()}[network][0][allocation-pool][0]
    Should Be Equal    ${pool}[subnet]    192.168.10.0/24
    Should Be Equal    ${pool}[gateway]    192.168.10.2

A Pod Without An Address Gets One Of Its Pool
    Write Pool And Pod
    ${address}=    Address Of The Pod
    Should Match Regexp    ${address}    ^10\\.20\\.0\\.\\d+/32$
    ${answer}=    Request    GET    ${DRAFT02_ROOT}/operational/${POOL.container}/network/${NAMESPACE}
    ...    expected=200
    Should Contain    ${answer.text}    "allocated-ip":"${address.removesuffix('/32')}"

A Pod That Waits For A Pool Is Served When It Comes
    ${body}=    Body    pod-without-address.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204
    Wait Until Keyword Succeeds    ${PATIENCE}    50ms    Problem Should Be    NoAddress
    Not Wanted    ${INTERFACES}    ${NAMESPACE}:${FRESH_NAME}
    ${body}=    Body    pool.json
    Request    POST    ${POOLS}    ${body}    expected=204
    Wanted    ${VPN_INTERFACES}    ${NAMESPACE}:${FRESH_NAME}
    Wait For Sync

A Pod Keeps Its Address When The Pool Goes
    Write Pool And Pod
    ${before}=    Address Of The Pod
    Request    DELETE    ${NETWORK}    expected=200
    Wait For Sync
    ${after}=    Address Of The Pod
    Should Be Equal    ${after}    ${before}


*** Keywords ***
Think Of A Pod
    [Documentation]    A pod that went gets its old address back, so each case has a pod of its own.
    ${uid}=    Evaluate    str(uuid.uuid4())
    VAR    ${FRESH_UID}    ${uid}    scope=TEST
    VAR    ${FRESH_NAME}    late-${uid}    scope=TEST

Write Pool And Pod
    ${body}=    Body    pool.json
    Request    POST    ${POOLS}    ${body}    expected=204
    ${body}=    Body    pod-without-address.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204

Address Of The Pod
    ${object}=    Wanted    ${VPN_INTERFACES}    ${NAMESPACE}:${FRESH_NAME}
    RETURN    ${object}[odl-l3vpn:adjacency][0][ip_address]

Problem Should Be
    [Documentation]    The bridge says what is missing.
    [Arguments]    ${reason}
    ${answer}=    Request    GET    ${STATUS}    expected=200
    VAR    ${problem}    ${answer.json()}[status][problem][0]
    Should Be Equal    ${problem}[reason]    ${reason}
    Should Be Equal    ${problem}[name]    ${FRESH_NAME}
